"""Prefetching a prompt into the upper tier."""

from __future__ import annotations

from pathlib import Path

import pytest
from admin_harness import AdminHarness
from store_harness import SIZE, truth

from pagoda.core.errors import RequestError
from pagoda.core.holdings import (
    Prefetched,
    PrefetchState,
)
from pagoda.core.outcome import Hit
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared


def test_a_prefetch_brings_a_prompt_up(admin: AdminHarness) -> None:
    """From the lower into the upper tier, verified, with its progress told."""
    keys = admin.put(admin.tokens(1, 6))
    admin.settle()
    upper = admin.store.levels()[0]
    admin.store.discard(upper, [upper.state.slot_of(key) for key in keys[2:]])
    admin.settle()
    first = admin.admin.prefetch(admin.tokens(1, 6), "")
    assert first.state is PrefetchState.RUNNING
    assert (first.blocks, first.present, first.done) == (6, 2, 0)
    admin.settle()
    assert admin.admin.prefetches() == [
        Prefetched(id=first.id, state=PrefetchState.DONE, blocks=6, present=2, done=4)
    ]
    outcomes, buffers = admin.read(keys)
    assert outcomes == [Hit("upper")] * 6
    assert [bytes(b) for b in buffers] == [bytes(truth(key)) for key in keys]


def test_a_prefetch_reaches_into_the_shared_store(tmp_path: Path) -> None:
    """What another node has computed is asked for, and brought up."""
    medium = FaultyShared(MemoryShared())
    other = AdminHarness(tmp_path, shared=medium)
    keys = other.put(other.tokens(1, 6))
    other.settle()
    admin = AdminHarness(tmp_path, shared=medium)
    begun = admin.admin.prefetch(admin.tokens(1, 6), "")
    assert (begun.state, begun.blocks) == (PrefetchState.RUNNING, 0), "the store is being asked"
    admin.settle()
    (after,) = admin.admin.prefetches()
    assert (after.state, after.blocks, after.done) == (PrefetchState.DONE, 6, 6)
    outcomes, buffers = admin.read(keys)
    assert outcomes == [Hit("upper")] * 6
    assert [bytes(b) for b in buffers] == [bytes(truth(key)) for key in keys]


def test_a_prefetch_stops_at_a_bad_block(admin: AdminHarness) -> None:
    """What lies before it is up; what lies behind it would be useless."""
    keys = admin.put(admin.tokens(1, 6))
    admin.settle()
    upper = admin.store.levels()[0]
    admin.store.discard(upper, upper.state.published_slots())
    admin.settle()
    admin.lower.flip_at_rest(admin.slot("lower", keys[3]), size_bytes=SIZE, at=9)
    admin.admin.prefetch(admin.tokens(1, 6), "")
    admin.settle()
    (after,) = admin.admin.prefetches()
    assert (after.state, after.done) == (PrefetchState.STOPPED, 3)
    assert len(upper.state.prefix(keys)) == 3


def test_a_prefetch_never_pushes_out_its_own_head(tmp_path: Path) -> None:
    """A prompt larger than the upper tier fills it and stops."""
    admin = AdminHarness(tmp_path, upper=4, lower=64)
    for blocks in (4, 8, 10):
        keys = admin.put(admin.tokens(1, blocks))
        admin.settle()
    assert admin.store.counts() == {"upper": 4, "lower": 10}
    upper = admin.store.levels()[0]
    admin.store.discard(upper, upper.state.published_slots())
    admin.settle()
    admin.admin.prefetch(admin.tokens(1, 10), "")
    admin.settle()
    (after,) = admin.admin.prefetches()
    assert (after.state, after.done) == (PrefetchState.STOPPED, 4)
    assert len(upper.state.prefix(keys)) == 4


def test_a_prefetch_keeps_what_is_up_already(tmp_path: Path) -> None:
    """The head of the prompt was the next to go: it counts as used now."""
    admin = AdminHarness(tmp_path, upper=4, lower=64)
    keys = admin.put(admin.tokens(1, 4))
    admin.settle()
    upper = admin.store.levels()[0]
    admin.store.discard(upper, [admin.slot("upper", key) for key in keys[2:]])
    admin.settle()
    admin.put(admin.tokens(2, 2))
    admin.settle()
    admin.admin.prefetch(admin.tokens(1, 4), "")
    admin.settle()
    assert len(upper.state.prefix(keys)) == 4


def test_a_prompt_that_nobody_holds_is_done_at_once(admin: AdminHarness) -> None:
    """Nothing to bring up is no failure."""
    after = admin.admin.prefetch(admin.tokens(9), "")
    assert (after.state, after.blocks) == (PrefetchState.DONE, 0)


def test_prefetches_are_bounded(admin: AdminHarness) -> None:
    """Each holds memory: a fifth at a time is told to come back."""
    for first in range(5):
        admin.put(admin.tokens(first))
    admin.settle()
    upper = admin.store.levels()[0]
    admin.store.discard(upper, upper.state.published_slots())
    for first in range(4):
        admin.admin.prefetch(admin.tokens(first), "")
    with pytest.raises(RequestError, match="running"):
        admin.admin.prefetch(admin.tokens(4), "")
    admin.settle()
    assert admin.admin.prefetch(admin.tokens(4), "").state is PrefetchState.RUNNING
