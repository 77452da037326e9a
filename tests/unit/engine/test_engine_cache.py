"""The engine's side of administration: who waits hears of an end, and restored blocks keep age."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from admin_harness import AdminHarness
from engine_harness import EngineHarness, prompt_of

from pagoda.core.errors import EngineClosed, RequestError, TierFault
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


def test_a_reset_leaves_nothing_for_a_restart_to_find(harness: AdminHarness) -> None:
    """Headers of blocks that were evicted, and of a write that failed half-way, stayed on the
    medium through a reset, and the next process served those blocks. What was queued or being
    written when everything was to go does not come later."""
    evicted = harness.put(harness.tokens(1))
    harness.settle()
    for level in harness.store.levels():
        level.residency.retire([level.state.slot_of(key) for key in evicted])
    failed = harness.put(harness.tokens(2), salt="a")
    half_written(harness)
    harness.settle()
    assert harness.store.counts() == {"upper": 4, "lower": 0}
    there = harness.put(harness.tokens(3))
    harness.executor.step()
    queued = harness.put(harness.tokens(4))
    computed = harness.compute(harness.tokens(5))
    dropped = resetting(harness).clear_everything()
    assert dropped == 4 + len(computed), "those of the failed write, in the upper tier"
    assert harness.on_medium() == 0
    harness.open()  # nothing of the first process is left but its media
    assert [harness.store.match(keys) for keys in (evicted, failed, there, queued)] == [0] * 4


def test_blocks_that_come_after_a_reset_stay(harness: AdminHarness) -> None:
    """It is a moment, not a state: later requests' blocks are none of those that were to go."""
    harness.put(harness.tokens(1))
    harness.settle()
    cache = EngineCache(harness.admin, lambda function: function())
    waiting = cache.clear(Scope())
    harness.clock.advance(2)
    later = harness.put(harness.tokens(2))
    harness.settle()
    assert waiting.result(timeout=0).verified
    harness.open()
    assert harness.store.match(later) == 4


def test_a_reset_that_is_not_proven_says_so(harness: AdminHarness) -> None:
    """A drive that keeps its headers is named; no count of dropped blocks hides it."""
    harness.put(harness.tokens(1))
    harness.settle()
    harness.lower.faults.erase_error = TierFault("no", tier="lower")
    with pytest.raises(RequestError, match="lower") as refused:
        resetting(harness).clear_everything()
    assert refused.value.code == "not_cleared"


def resetting(harness: AdminHarness) -> EngineCache:
    """An engine's cache, whose thread goes on until nothing moves after each call."""

    def ask(function: Callable[[], object]) -> object:
        answer = function()
        harness.settle()
        return answer

    return EngineCache(harness.admin, ask)


def half_written(harness: AdminHarness) -> None:
    """The next commit of the lower tier writes its headers, and then fails."""
    commit = harness.lower.inner.commit

    def fails(slots: list[int], headers: list[bytes]) -> None:
        commit(slots, headers)
        harness.lower.inner.commit = commit
        raise TierFault("the sync failed", tier="lower")

    harness.lower.inner.commit = fails


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
