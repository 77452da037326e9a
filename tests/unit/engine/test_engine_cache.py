"""The engine's side of administration: who waits hears of an end, and restored blocks keep age."""

from __future__ import annotations

from pathlib import Path

import pytest
from admin_harness import AdminHarness
from engine_harness import EngineHarness, prompt_of

from pagoda.core.errors import EngineClosed, RequestError
from pagoda.core.holdings import Scope
from pagoda.engine.cache import EngineCache


@pytest.fixture
def harness(tmp_path: Path) -> AdminHarness:
    """A store with its administration."""
    return AdminHarness(tmp_path)


def test_whoever_waits_for_a_clearing_hears_of_the_engines_end(harness: AdminHarness) -> None:
    """EngineClosed, once; what the tiers still do afterwards tells nobody."""
    cache = EngineCache(harness.admin, lambda function: function())
    harness.put(harness.tokens(1))
    harness.settle()
    ended = cache.clear(Scope())
    harness.settle()
    waiting = cache.clear(Scope())
    assert not waiting.done()
    cache.close()
    assert isinstance(waiting.exception(timeout=0), EngineClosed)
    harness.settle()
    assert ended.result(timeout=0).verified


def test_a_scope_that_is_refused_leaves_nobody_waiting(harness: AdminHarness) -> None:
    """The caller is told at once."""
    cache = EngineCache(harness.admin, lambda function: function())
    with pytest.raises(RequestError):
        cache.clear(Scope(tenant="0" * 16))
    assert harness.admin.idle


def test_a_restored_block_is_as_old_as_its_copy() -> None:
    """Else a block that is asked for now and then would outlive its time to live for ever."""
    engine = EngineHarness()
    prompt = prompt_of(100)
    engine.ask("first", prompt)
    engine.run()
    written_s = {engine.io.store.created_s(key) for key, _ in engine.device.state.published()}
    engine.device.forget()
    engine.io.clock.advance(500)
    engine.device.wall_s = lambda: engine.io.clock.wall_ms() // 1000
    engine.ask("again", prompt)
    engine.run()
    births = sorted(
        engine.device.births[b].created_s for b in engine.device.state.published_slots()
    )
    restored = [created_s for created_s in births if created_s in written_s]
    assert len(restored) == 5, "(100 - 16) // 16 blocks came from a tier"
    assert set(births) - written_s == {engine.io.clock.wall_ms() // 1000}, "the tail was computed"
