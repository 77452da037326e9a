"""The store's promises, one by one, with every order of I/O under the test's control."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from store_harness import SIZE, Harness, dirty, keys_of, truth

from pagoda.core.errors import TierFault, TierFull, TierReadOnly
from pagoda.core.events import Degraded, Evicted, Quarantined, Reason, Refused, Restored, Skipped
from pagoda.core.outcome import Corrupt, Hit, Miss, Unavailable
from pagoda.core.state import SlotState
from pagoda.lab.defects.patch import applied
from pagoda.lab.incident.run import OFF_BY_ONE
from pagoda.seal.envelope import PLAIN, Envelope
from pagoda.seal.header import Seal, pack, unpack
from pagoda.seal.keyring import read_keyring
from pagoda.tiers.sealed import SealedTier


def test_a_saved_prefix_is_restored_from_the_upper_tier(harness: Harness) -> None:
    """Bytes come back verified, and the saver's memory was given back once for each block."""
    keys = keys_of(5)
    harness.save_all(keys)
    assert harness.store.match(keys) == 5
    outcomes, buffers = harness.read(keys)
    assert outcomes == [Hit("upper")] * 5
    assert [bytes(b) for b in buffers] == [bytes(truth(k)) for k in keys]
    assert harness.released == dict.fromkeys(keys, 1)
    assert harness.store.counts() == {"upper": 5, "lower": 5}


def test_a_prefix_longer_than_what_is_there_ends_with_misses(harness: Harness) -> None:
    """Blocks that nobody stored are misses, not errors."""
    keys = keys_of(4)
    harness.save_all(keys[:2])
    outcomes, buffers = harness.read(keys)
    assert outcomes == [Hit("upper"), Hit("upper"), Miss(), Miss()]
    assert bytes(buffers[3]) == bytes(dirty()), "nothing was written where nothing was read"


def test_a_restart_finds_what_the_lower_tier_holds(harness: Harness) -> None:
    """The index is rebuilt from headers; what was only in memory is gone."""
    keys = keys_of(6)
    harness.save_all(keys)
    harness.upper = Harness(upper=16).upper
    harness.open()
    outcomes, buffers = harness.read(keys)
    assert outcomes == [Hit("lower")] * 6
    assert bytes(buffers[5]) == bytes(truth(keys[5]))


def test_the_newer_of_two_copies_survives_a_restart() -> None:
    """An evicted block's header stays on the medium until its slot is reused; stored again
    elsewhere, the key is there twice. The newer copy counts, the older one is erased."""
    one = Harness(upper=0, lower=4)
    one.save_all(keys_of(1))
    old = one.slot("lower", keys_of(1)[0])
    one.save_all(keys_of(3, salt=1))
    one.clock.advance(1)
    one.save_all(keys_of(1, salt=2))  # evicts the first, and takes its slot
    one.clock.advance(1)
    one.save_all(keys_of(1))  # in another slot now
    new = one.slot("lower", keys_of(1)[0])
    assert new != old
    header = dict(one.lower.scan())[new]
    seal = unpack(header, slot=new, slab_id=one.lower.identity)
    assert isinstance(seal, Seal)
    one.lower.inner.commit([old], [pack(seal_before(seal), slot=old, slab_id=one.lower.identity)])
    one.open()
    assert one.slot("lower", keys_of(1)[0]) == new
    assert old not in dict(one.lower.scan())
    assert one.read(keys_of(1))[0] == [Hit("lower")]
    one.store.check_invariants()


def seal_before(seal: Seal) -> Seal:
    """The seal of an earlier copy."""
    return replace(seal, created_ms=seal.created_ms - 500, generation=0)


@pytest.mark.parametrize("bad", [0, 2, 4])
def test_a_corrupt_block_ends_the_usable_prefix_and_leaves_service(
    harness: Harness, bad: int
) -> None:
    """It is told with its reason, zeroed, not found again, and its header is erased."""
    keys = keys_of(5)
    harness.save_all(keys)
    slot = harness.slot("upper", keys[bad])
    harness.upper.faults.flip_on_read.add(slot)
    restore, buffers = harness.start(keys)
    harness.settle()
    assert restore.usable_blocks == bad
    assert restore.outcomes[bad] == Corrupt("upper", Reason.CORRUPT)
    assert bytes(buffers[bad]) == bytes(SIZE)
    assert harness.told(Refused) == [Refused(tier="upper", blocks=1, reason=Reason.CORRUPT)]
    assert harness.told(Quarantined) == [Quarantined(tier="upper", slots=1, reason=Reason.CORRUPT)]
    assert slot not in dict(harness.upper.scan())
    assert harness.store.match(keys) == bad
    assert harness.read(keys)[0][bad] == Miss(Reason.SUSPECT), "the other copy may be as bad"
    harness.clock.advance(31)
    assert harness.read(keys)[0][bad] == Hit("lower"), "after a while it is given a chance"


def test_a_quarantined_block_can_be_stored_again_elsewhere(harness: Harness) -> None:
    """Recomputed, it goes to another slot: the bad one is never reused."""
    keys = keys_of(1)
    harness.save_all(keys)
    slot = harness.slot("upper", keys[0])
    harness.upper.faults.flip_on_read.add(slot)
    harness.read(keys)
    harness.save_all(keys)
    assert harness.slot("upper", keys[0]) != slot
    assert harness.read(keys)[0] == [Hit("upper")]


def test_an_unreadable_block_rests_the_tier(harness: Harness) -> None:
    """After an I/O error the tier is left alone for a while, and tried again after it."""
    keys = keys_of(3)
    harness.save_all(keys)
    slot = harness.slot("upper", keys[1])
    harness.upper.faults.read_error[slot] = TierFault("bad sector", tier="upper")
    outcomes, _ = harness.read(keys)
    assert outcomes == [Hit("upper"), Unavailable("upper", Reason.IO_ERROR), Hit("upper")]
    assert [event.reason for event in harness.told(Degraded)] == [Reason.IO_ERROR]
    assert harness.read(keys[:1])[0] == [Hit("lower")]
    harness.clock.advance(31)
    assert harness.read(keys)[0] == [Hit("upper"), Hit("lower"), Hit("upper")]


def test_a_stuck_read_is_late_not_forever(harness: Harness) -> None:
    """At the deadline the request goes on; the buffers stay taken until the I/O has ended."""
    keys = keys_of(3)
    harness.save_all(keys)
    read = harness.upper.inner.read

    def hang(slots: list[int], into: list[memoryview]) -> list[int]:
        harness.clock.advance(1.9)
        harness.store.poll()
        assert not restore.done
        harness.clock.advance(0.2)
        harness.store.poll()
        assert restore.done
        assert restore.outcomes == [Unavailable("upper", Reason.TIMEOUT)] * 3
        assert restore.flying() == {0, 1, 2}, "a thread may still write there"
        assert harness.store.match(keys) == 3, "the lower tier serves while the upper rests"
        assert harness.read(keys)[0] == [Hit("lower")] * 3
        return read(slots, into)

    harness.upper.inner.read = hang
    restore, _ = harness.start(keys)
    harness.settle()
    assert restore.drained
    assert restore.outcomes == [Unavailable("upper", Reason.TIMEOUT)] * 3, "late stays late"
    assert [e.reason for e in harness.told(Refused)] == [Reason.TIMEOUT]


def test_reads_queued_behind_a_stuck_drive_give_their_buffers_back(harness: Harness) -> None:
    """A drive hung for minutes. Its few I/O threads were stuck, each request after them queued
    another read behind those, and each queued read kept its blocks of device memory until the
    whole pool was gone and every request waited for ever. A read that no thread has taken up
    by its deadline is called back: buffers zeroed, leases gone, and the late job does nothing."""
    keys = keys_of(3)
    harness.save_all(keys)
    restore, buffers = harness.start(keys)
    harness.executor.hold()
    harness.clock.advance(2.1)
    harness.store.poll()
    assert restore.outcomes == [Unavailable("upper", Reason.TIMEOUT)] * 3
    assert restore.drained, "the caller has its buffers back"
    assert [bytes(b) for b in buffers] == [bytes(SIZE)] * 3
    assert [level.state.lease_count() for level in harness.store.levels()] == [0, 0]
    for buffer in buffers:  # another request uses the memory
        buffer[:] = b"\x77" * SIZE
    harness.executor.unhold()
    harness.settle()
    assert [bytes(b) for b in buffers] == [b"\x77" * SIZE] * 3, "the job came too late to write"
    assert [e.reason for e in harness.told(Refused)] == [Reason.TIMEOUT]
    harness.clock.advance(60)
    assert harness.read(keys)[0] == [Hit("upper")] * 3, "nothing was lost by it"


def test_a_block_whose_read_hangs_is_not_found_again(harness: Harness) -> None:
    """A read that began and missed its deadline: its block is forgotten, its slot comes free
    only after the I/O has ended, and what it delivers then counts for nothing."""
    keys = keys_of(1)
    harness.save_all(keys)
    slot = harness.slot("upper", keys[0])
    state = harness.store.levels()[0].state
    read = harness.upper.inner.read

    def hang(slots: list[int], into: list[memoryview]) -> list[int]:
        harness.clock.advance(3)
        harness.store.poll()
        assert state.state_of(slot) == SlotState.RETIRING
        return read(slots, into)

    harness.upper.inner.read = hang
    restore, _ = harness.start(keys)
    harness.executor.step()
    assert restore.outcomes == [Unavailable("upper", Reason.TIMEOUT)]
    harness.clock.advance(60)
    harness.store.poll()
    assert state.state_of(slot) == SlotState.FREE
    assert harness.read(keys)[0] == [Hit("lower")]


def test_a_leased_slot_outlives_eviction_pressure(harness: Harness) -> None:
    """While a read is in flight its slots are not reused, however much is stored meanwhile."""
    small = Harness(upper=4, lower=0)
    keys = keys_of(4)
    small.save_all(keys)
    restore, buffers = small.start(keys)
    small.executor.hold()
    small.save(keys_of(8, salt=1))
    small.settle()
    assert {e.reason for e in small.told(Skipped)} == {Reason.FULL}
    small.executor.unhold()
    small.settle()
    assert restore.outcomes == [Hit("upper")] * 4
    assert [bytes(b) for b in buffers] == [bytes(truth(k)) for k in keys]
    small.store.check_invariants()


def test_a_full_tier_evicts_the_least_recently_used(harness: Harness) -> None:
    """Old prefixes make room for new ones, tail first, and it is told."""
    first, second = keys_of(12), keys_of(12, salt=1)
    harness.save_all(first)
    harness.save_all(second)
    assert harness.store.counts() == {"upper": 16, "lower": 24}
    assert sum(e.blocks for e in harness.told(Evicted)) == 8
    outcomes, _ = harness.read(first)
    assert outcomes == [Hit("upper")] * 4 + [Hit("lower")] * 8


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TierFull("no space", tier="lower"), Reason.FULL),
        (TierReadOnly("read only", tier="lower"), Reason.READ_ONLY),
        (TierFault("broken", tier="lower"), Reason.IO_ERROR),
    ],
)
def test_a_tier_that_cannot_write_still_reads(
    harness: Harness, error: Exception, reason: Reason
) -> None:
    """Writes stop for a while and are counted; reads go on; later writes are tried again."""
    old, new = keys_of(2), keys_of(2, salt=1)
    harness.save_all(old)
    harness.lower.faults.write_error = error
    harness.save_all(new)
    assert harness.store.counts() == {"upper": 4, "lower": 2}
    assert [e.reason for e in harness.told(Degraded)] == [reason]
    assert sum(e.blocks for e in harness.told(Skipped)) == 2
    assert harness.released == dict.fromkeys([*old, *new], 1)
    harness.lower.faults.clear()
    harness.save_all(keys_of(2, salt=2))
    assert harness.store.counts()["lower"] == 2, "not tried again at once"
    harness.clock.advance(6)
    harness.save_all(keys_of(2, salt=3))
    assert harness.store.counts()["lower"] == 4


def test_a_failed_write_cannot_be_found(harness: Harness) -> None:
    """Peers kept failed stores visible and served them later."""
    harness.lower.faults.commit_error = TierFault("broken", tier="lower")
    harness.upper.faults.write_error = TierFault("broken", tier="upper")
    harness.save_all(keys_of(3))
    assert harness.store.match(keys_of(3)) == 0


def test_corruption_does_not_travel_down(harness: Harness) -> None:
    """A block that went bad in the upper tier is not copied to the lower one."""
    keys = keys_of(3)
    harness.save(keys)
    harness.executor.step()  # written above
    harness.store.poll()
    harness.upper.faults.flip_on_read.add(harness.slot("upper", keys[1]))
    harness.settle()
    assert [harness.store.match([k]) for k in keys] == [1, 1, 1]
    assert harness.store.counts() == {"upper": 3, "lower": 2}


def test_a_stuck_writer_gives_memory_back_in_time(harness: Harness) -> None:
    """What waits behind stuck I/O is dropped at the deadline, so that nobody waits for ever."""
    harness.save(keys_of(2))
    harness.executor.hold()
    harness.save(keys_of(3, salt=1))
    harness.store.poll()
    assert not harness.released
    harness.clock.advance(31)
    harness.store.poll()
    assert harness.released == dict.fromkeys(keys_of(3, salt=1), 1)
    assert {e.reason for e in harness.told(Skipped)} == {Reason.TIMEOUT}


def test_the_queue_is_bounded() -> None:
    """More than the bound is skipped as busy, and given back at once."""
    small = Harness(queue_bytes=4 * SIZE)
    small.executor.hold()
    small.save(keys_of(1))  # in flight
    small.executor.hold()
    small.save(keys_of(9, salt=1))
    busy = [e for e in small.told(Skipped) if e.reason is Reason.BUSY]
    assert len(busy) == 5
    assert sum(small.released.values()) == 5
    small.executor.unhold()
    small.settle()
    small.store.check_invariants()


def test_saving_again_writes_nothing(harness: Harness) -> None:
    """A clean copy is not rewritten."""
    keys = keys_of(4)
    harness.save_all(keys)
    generations = [harness.store.levels()[1].state.generation(s) for s in range(32)]
    harness.save_all(keys)
    assert generations == [harness.store.levels()[1].state.generation(s) for s in range(32)]
    assert harness.released == dict.fromkeys(keys, 2)


def test_clearing_forgets_and_erases(harness: Harness) -> None:
    """Nothing is found at once, no header is left after the erasing, slots are free again."""
    keys = keys_of(7)
    harness.save_all(keys)
    assert harness.store.clear() == 14
    assert harness.store.match(keys) == 0
    harness.settle()
    assert dict(harness.upper.scan()) == dict(harness.lower.scan()) == {}
    assert harness.store.levels()[0].state.free_count() == 16


def test_clearing_cannot_erase_a_block_stored_later(harness: Harness) -> None:
    """Erasing happens before the slots are free, whatever order the I/O runs in."""
    for seed in range(20):
        shuffled = Harness(upper=4, lower=4, seed=seed)
        shuffled.save_all(keys_of(4))
        shuffled.store.clear()
        shuffled.save(keys_of(4, salt=1))
        shuffled.settle()
        shuffled.save_all(keys_of(4, salt=1))
        outcomes, _ = shuffled.read(keys_of(4, salt=1))
        assert outcomes == [Hit("upper")] * 4
        assert len(dict(shuffled.lower.scan())) == 4


def test_clearing_reaches_blocks_in_use_and_in_flight(harness: Harness) -> None:
    """What is being read, written or queued while the cache is cleared is gone after it, too."""
    read, written = keys_of(3), keys_of(3, salt=1)
    harness.save_all(read)
    restore, _ = harness.start(read)
    harness.save(written)
    harness.store.clear()
    harness.settle()
    assert restore.done
    assert harness.store.match(read) == harness.store.match(written) == 0
    assert dict(harness.upper.scan()) == dict(harness.lower.scan()) == {}
    assert harness.released == dict.fromkeys(written, 1) | dict.fromkeys(read, 1)


def test_a_store_without_tiers_keeps_nothing() -> None:
    """Everything off: saving gives the memory back, looking up finds nothing."""
    none = Harness(upper=0, lower=0)
    none.save(keys_of(3))
    assert sum(none.released.values()) == 3
    assert none.store.match(keys_of(3)) == 0
    assert none.read(keys_of(2))[0] == [Miss(), Miss()]


def test_verified_bytes_are_counted(harness: Harness) -> None:
    """Restored bytes are those that were handed over, so that «stored, never loaded» shows."""
    keys = keys_of(4)
    harness.save_all(keys)
    harness.read(keys)
    restored = harness.told(Restored)
    assert sum(e.size_bytes for e in restored) == 4 * SIZE
    assert sum(e.blocks for e in restored) == 4


def test_flush_says_whether_all_is_written(harness: Harness) -> None:
    """True once everything queued is committed; False when the time is over first."""
    harness.save(keys_of(3))
    assert harness.store.flush(5.0)
    assert harness.store.counts() == {"upper": 3, "lower": 3}
    harness.save(keys_of(3, salt=1))
    harness.executor.hold()
    assert not harness.store.flush(0.0)


def test_a_key_that_outlived_its_block_is_told_once_and_costs_a_tier(harness: Harness) -> None:
    """The mistake of the incident in the upper tier: the lower one answers, somebody hears."""
    keys = keys_of(2)
    harness.save_all(keys)
    slot = harness.slot("upper", keys[0])
    with applied(OFF_BY_ONE):
        harness.store.levels()[0].residency.retire([slot])
    outcomes, buffers = harness.read(keys)
    assert outcomes == [Hit("lower"), Hit("upper")]
    assert buffers == [truth(key) for key in keys]
    assert harness.told(Refused) == [Refused(tier="upper", blocks=1, reason=Reason.STALE)]


class Encrypting(Harness):
    """A harness whose lower tier has a key, once it is given one."""

    envelope = PLAIN

    def ranks(self) -> list[list[SealedTier]]:
        return [[SealedTier(self.lower, self.envelope)]]


def test_a_key_that_was_switched_on_does_not_lock_blocks_out_for_ever(tmp_path: Path) -> None:
    """Plain blocks of before kept their keys in the index and were refused at every restart."""
    path = tmp_path / "keys"
    path.write_text("1:" + "ab" * 32, encoding="ascii")
    path.chmod(0o600)
    one = Encrypting()
    one.save_all(keys_of(3))
    for envelope in (Envelope.of("raw", read_keyring(path, setting="k"), setting="drive"), PLAIN):
        one.envelope = envelope
        one.open()
        assert one.store.counts() == {"lower": 0}
        one.save_all(keys_of(3))
        one.open()
        assert one.read(keys_of(3))[0] == [Hit("lower")] * 3
        one.store.check_invariants()
