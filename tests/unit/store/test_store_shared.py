"""A store with a shared one below it: what goes down, what comes back, and what is waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store_harness import NAMESPACE, SIZE, Harness, dirty, keys_of, truth

from pagoda.core.errors import TierFault
from pagoda.core.events import Reason, Skipped
from pagoda.core.outcome import Hit, Miss
from pagoda.testing.clock import FakeClock
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared


@pytest.fixture
def medium() -> FaultyShared:
    """What both nodes share."""
    return FaultyShared(MemoryShared())


@pytest.fixture
def nodes(medium: FaultyShared) -> Iterator[list[Harness]]:
    """Two nodes on one clock; the first has memory and a drive, the second memory alone."""
    clock = FakeClock()
    pair = [
        Harness(shared=medium, clock=clock),
        Harness(shared=medium, clock=clock, lower=0, seed=1),
    ]
    yield pair
    for node in pair:
        node.settle()
        assert node.store.idle
        node.store.check_invariants()


def probe(node: Harness, keys: list) -> None:
    """Ask what is there, and wait for the answer."""
    asked = node.store.probe(NAMESPACE, keys)
    node.settle()
    assert asked.done


def test_what_one_node_stores_another_restores(nodes: list[Harness], medium: FaultyShared) -> None:
    """Behind the last local tier, read back through its seal; found after a probe; verified."""
    keys = keys_of(6)
    nodes[0].save_all(keys)
    assert len(medium.inner.values) == 6
    assert nodes[0].released == dict.fromkeys(keys, 1)
    assert nodes[1].store.match(keys) == 0, "nobody has asked yet"
    probe(nodes[1], keys)
    assert nodes[1].store.match(keys) == 6
    outcomes, buffers = nodes[1].read(keys)
    assert outcomes == [Hit("remote")] * 6
    assert [bytes(b) for b in buffers] == [bytes(truth(key)) for key in keys]


def test_a_prefix_comes_from_near_and_far(nodes: list[Harness], medium: FaultyShared) -> None:
    """The local part is read locally, the rest from the shared store, what is behind is absent;
    only what is not local is asked for."""
    keys = keys_of(8)
    nodes[0].save_all(keys[:6])
    nodes[1].save_all(keys[:2])
    probe(nodes[1], keys)
    restore, buffers = nodes[1].start(keys)
    nodes[1].settle()
    assert restore.outcomes == [Hit("upper")] * 2 + [Hit("remote")] * 4 + [Miss()] * 2
    assert bytes(buffers[7]) == bytes(dirty())


def test_a_store_without_a_shared_one_has_nothing_to_wait_for() -> None:
    """The probe is done at once."""
    alone = Harness()
    assert alone.store.probe(NAMESPACE, keys_of(3)).done
    assert alone.store.shared is None


def test_a_probe_that_hangs_is_over_in_time(nodes: list[Harness]) -> None:
    """A request does not wait longer than the probe's deadline, and the engine can sleep until
    just then."""
    asked = nodes[1].store.probe(NAMESPACE, keys_of(3))
    nodes[1].executor.hold()
    assert not asked.done
    due_s = nodes[1].store.next_deadline_s()
    assert due_s is not None
    nodes[1].clock.advance(due_s - nodes[1].clock())
    nodes[1].store.poll()
    assert asked.done
    assert nodes[1].store.match(keys_of(3)) == 0
    nodes[1].executor.unhold()


def test_a_drive_that_cannot_take_a_block_does_not_end_its_sharing(
    nodes: list[Harness], medium: FaultyShared
) -> None:
    """Worn, full or broken: the block is counted as skipped there, and goes on from memory."""
    nodes[0].lower.faults.write_error = TierFault("broken", tier="lower")
    keys = keys_of(4)
    nodes[0].save_all(keys)
    nodes[0].save_all(keys_of(4, salt=1))  # the drive rests by now
    assert len(medium.inner.values) == 8
    assert {e.reason for e in nodes[0].told(Skipped)} == {Reason.IO_ERROR, Reason.READ_ONLY}
    assert nodes[0].store.counts() == {"upper": 8, "lower": 0}
    probe(nodes[1], keys)
    assert nodes[1].read(keys)[0] == [Hit("remote")] * 4


def test_a_node_without_local_tiers_shares_too(medium: FaultyShared) -> None:
    """Blocks go from the caller's memory, which is given back once they are sent."""
    bare = Harness(upper=0, lower=0, shared=medium)
    keys = keys_of(3)
    bare.save(keys)
    assert sum(bare.released.values()) == 0
    bare.settle()
    assert bare.released == dict.fromkeys(keys, 1)
    probe(bare, keys)
    assert bare.read(keys)[0] == [Hit("remote")] * 3


def test_a_lying_store_costs_a_recomputed_block_and_is_not_asked_again(
    nodes: list[Harness], medium: FaultyShared
) -> None:
    """One bad block made a request retry for ever: here it is a miss until it was stored anew."""
    keys = keys_of(3)
    nodes[0].save_all(keys)
    name = sorted(medium.inner.values)[0]
    bad = next(i for i, key in enumerate(keys) if name.endswith(key.hex()))
    value = bytearray(medium.inner.values[name])
    value[-1] ^= 1
    medium.inner.values[name] = bytes(value)
    probe(nodes[1], keys)
    restore, buffers = nodes[1].start(keys)
    nodes[1].settle()
    assert restore.usable_blocks == bad
    assert bytes(buffers[bad]) == bytes(SIZE)
    probe(nodes[1], keys)
    assert nodes[1].store.match(keys) == bad


def test_clearing_and_closing_reach_what_is_queued_for_the_shared_store(
    nodes: list[Harness], medium: FaultyShared
) -> None:
    """Queued blocks are given back; a clean end lets go of the connection."""
    closed: list[bool] = []
    medium.close = lambda: closed.append(True)
    nodes[1].save_all(keys_of(2))
    nodes[1].save(keys_of(12, salt=1))
    nodes[1].executor.step()
    nodes[1].store.poll()
    nodes[1].store.clear()
    nodes[1].settle()
    assert sum(nodes[1].released.values()) == 14
    assert nodes[1].store.close(flush_s=1.0)
    assert closed == [True]
