"""Bugs that the simulation found, each as the smallest case that shows it."""

from __future__ import annotations

import pytest
from pool_harness import Pool
from store_harness import NAMESPACE, SIZE, Harness, dirty, keys_of, truth

from pagoda.core.errors import TierFault, TierFull
from pagoda.core.events import Quarantined, Reason
from pagoda.core.identity import ROOT
from pagoda.core.outcome import Corrupt, Hit, Miss
from pagoda.core.state import SlotState
from pagoda.store.block import Block
from pagoda.store.executor import Runtime
from pagoda.store.scrub import ScrubPlan
from pagoda.store.store import Store, StoreConfig
from pagoda.store.trust import Fence
from pagoda.testing.clock import FakeClock
from pagoda.testing.executor import SteppedExecutor
from pagoda.testing.faults import FaultyTier
from pagoda.tiers.host import HostTier
from pagoda.tiers.sealed import SealedTier


def test_making_room_for_a_chain_does_not_drop_its_own_blocks() -> None:
    """The tail of a chain lay in a full tier, unused for longest, and its head was gone. Saved
    again, the head's blocks took the tail's slots, and the tail was not written, for it was
    still there when it was looked at: the chain had a hole at once."""
    small = Harness(upper=4, lower=0)
    chain = keys_of(4)
    small.save_all(chain[3:])
    small.save_all(keys_of(3, salt=1))
    small.save_all(chain)
    assert small.store.match(chain) == 4


def test_a_trial_does_not_write_to_a_drive_whose_blocks_nobody_knows() -> None:
    """A drive did not come up, was fenced, and got its trial: a block written into slot 0, which
    counted as free because nothing had been read, over a block that a later start would have
    found."""
    pool = Pool(drives=2)
    keys = keys_of(24)
    pool.save_all(keys)
    lost = pool.drives[1].tier
    before = dict(lost.scan())
    assert before
    lost.scan, scan = _fails, lost.scan
    pool.forget_memory()
    pool.level(1).trust.fence(Fence.FAULTS, Reason.IO_ERROR, "as its looks hang")
    pool.pass_time(61)
    pool.pass_time(61)
    lost.scan = scan
    assert dict(lost.scan()) == before
    pool.forget_memory()
    assert all(isinstance(outcome, Hit) for outcome in pool.read(keys)[0])


def test_a_late_order_for_requests_that_share_a_prefix_costs_its_blocks_once() -> None:
    """Two requests for one prefix were restored by one order, which named each slot twice. When
    the read hung, taking its blocks out of service failed at the second time."""
    harness = Harness()
    keys = keys_of(3)
    harness.save_all(keys)
    read = harness.upper.inner.read

    def hang(slots: list[int], into: list[memoryview]) -> list[int]:
        harness.clock.advance(3)
        harness.store.poll()
        return read(slots, into)

    harness.upper.inner.read = hang
    wishes = [(keys, [dirty() for _ in keys]) for _ in range(2)]
    restores = harness.store.restore_all(wishes)
    harness.settle()
    assert all(restore.drained for restore in restores)
    harness.store.check_invariants()
    assert harness.store.counts()["upper"] == 0, "blocks whose reads hang are not found again"


def test_scrubbing_leaves_blocks_alone_that_do_not_fill_their_slots() -> None:
    """Slots are whole pages, blocks need not be. Scrubbing read each block into a buffer of its
    slot's size, took the difference for damage, and threw every sound block away."""
    executor, clock = SteppedExecutor(), FakeClock()
    tier = FaultyTier(HostTier(slots=4, slot_bytes=2 * SIZE))
    runtime = Runtime(executor=executor, clock=clock, wall_ms=clock.wall_ms)
    config = StoreConfig(scrub=ScrubPlan(rate_bytes_s=1 << 30))
    store = Store([[SealedTier(tier)]], runtime=runtime, config=config)
    keys = keys_of(3)
    blocks = [
        Block(namespace=NAMESPACE, key=key, parent=ROOT, depth=0, tokens=16, payload=truth(key))
        for key in keys
    ]
    store.save(blocks, lambda block: None)
    for _ in range(3):
        store.poll()
        executor.drain()
        clock.advance(90_000)
    store.poll()
    assert store.match(keys) == 3
    assert store.levels()[0].state.count(SlotState.QUARANTINED) == 0


def test_a_write_that_fails_after_a_clearing_goes_nowhere_else() -> None:
    """While blocks were on their way into memory the cache was cleared; then their write failed.
    What a rank cannot store is handed to the next one, and so they were found on the drive."""
    harness = Harness()
    keys = keys_of(3)
    harness.save(keys)
    harness.store.clear()
    harness.upper.faults.write_error = TierFull("no space", tier="upper")
    harness.settle()
    assert harness.store.match(keys) == 0
    assert harness.store.counts() == {"upper": 0, "lower": 0}
    assert harness.released == dict.fromkeys(keys, 1)


def test_a_block_that_is_cleared_while_it_is_read_is_a_miss_and_no_damage() -> None:
    """The cache was cleared while a read was under way, and the header was erased before the read
    ended: operators heard of a misplaced block on a drive that was sound."""
    harness = Harness()
    keys = keys_of(1)
    harness.save_all(keys)
    read = harness.upper.inner.read

    def meanwhile(slots: list[int], into: list[memoryview]) -> list[int]:
        counts = read(slots, into)
        harness.store.clear()
        harness.executor.drain()
        return counts

    harness.upper.inner.read = meanwhile
    outcomes, buffers = harness.read(keys)
    assert outcomes == [Miss(Reason.STALE)]
    assert bytes(buffers[0]) == bytes(SIZE)
    assert not harness.told(Quarantined)


def _fails() -> None:
    raise TierFault("it does not come up", tier="drive1")


def test_a_block_that_arrives_for_one_request_and_not_for_the_other_keeps_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both read the slot in one order, a bit flipped on the way to one of them: its slot left
    service with a lease that nobody gave back. Seed 1014, step 245,481."""
    one = Harness(upper=16, lower=0)
    keys = keys_of(1)
    one.save_all(keys)
    sealed = one.store.levels()[0].sealed
    load = sealed.load

    def flipped_for_the_first(orders, into):
        return [Corrupt("upper", Reason.CORRUPT), *load(orders, into)[1:]]

    monkeypatch.setattr(sealed, "load", flipped_for_the_first)
    restores = one.store.restore_all([(keys, [dirty()]), (keys, [dirty()])])
    one.settle()
    assert [restore.usable_blocks for restore in restores] == [0, 1]
    one.store.check_invariants()
