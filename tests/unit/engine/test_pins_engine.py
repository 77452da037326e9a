"""Pins as other threads ask for them, and what the engine's requests tell of the hottest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from admin_harness import SERVED, AdminHarness

from pagoda.core.errors import PinRefused
from pagoda.core.pins import PinWish
from pagoda.engine.cache import EngineCache

WISH = PinWish(owner="a", expires_s=60)


def test_a_pin_is_answered_once_it_is_written_down(tmp_path: Path) -> None:
    """Whoever waits hears that it survives; whoever does not is answered at once."""
    harness = AdminHarness(tmp_path)
    asked = threading.Event()

    def ask(function: Callable[[], object]) -> object:
        answer = function()
        asked.set()
        return answer

    def write() -> None:
        assert asked.wait(30)
        harness.settle()

    cache = EngineCache(harness.admin, ask)
    at_once = cache.pin(harness.tokens(1), "", WISH)
    assert not at_once.durable, "no I/O has run yet"
    asked.clear()
    turn = threading.Thread(target=write)
    turn.start()
    waited = cache.pin(harness.tokens(2), "", WISH, wait_s=30)
    turn.join()
    assert waited.durable
    assert all(pin.durable for pin in cache.pins())


def test_a_pin_that_is_not_written_in_time_is_held_all_the_same(tmp_path: Path) -> None:
    """A drive that hangs is not waited for."""
    harness = AdminHarness(tmp_path)
    cache = EngineCache(harness.admin, lambda function: function())
    late = cache.pin(harness.tokens(1), "", WISH, wait_s=0.01)
    assert not late.durable
    assert [pin.id for pin in cache.pins()] == [late.id]
    harness.settle()
    assert cache.pins()[0].durable


def test_refusals_and_ends_reach_whoever_asked(tmp_path: Path) -> None:
    """With their types; an end is told with its number."""
    harness = AdminHarness(tmp_path)
    cache = EngineCache(harness.admin, lambda function: function())
    with pytest.raises(PinRefused):
        cache.pin(harness.tokens(1, 40), "", WISH)
    id = cache.pin(harness.tokens(1), "alice", WISH).id
    assert cache.pins()[0].namespace == SERVED.namespace_of("alice").hex()
    assert cache.unpin(id, owner=None) == 1
    assert cache.pins() == []
