"""Several drives as one rank: spread, and each one's trouble its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pool_harness import GIB, Pool
from store_harness import SIZE, keys_of, truth

from pagoda.core.budget import Endurance
from pagoda.core.errors import TierError, TierFault, TierFull
from pagoda.core.events import Degraded, Examined, Fenced, Reason, Skipped, Unfenced
from pagoda.core.outcome import Hit, Miss
from pagoda.machine.smart import DriveHealth
from pagoda.store.executor import Kind
from pagoda.store.health import Space
from pagoda.store.trust import FAULTS_TO_FENCE, Fence


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Three drives of 16 blocks below memory, whose invariants are checked at the end."""
    pool = Pool()
    yield pool
    pool.executor.unhold()
    pool.settle()
    assert pool.store.idle
    pool.store.check_invariants()


def reasons(pool: Pool, kind: type) -> list[Reason]:
    """Of the events of one kind, in order."""
    return [event.reason for event in pool.told(kind)]


def read_from_drives(pool: Pool, keys: list) -> list:
    """Outcomes of a restore with empty memory."""
    pool.forget_memory()
    outcomes, buffers = pool.read(keys)
    for key, outcome, buffer in zip(keys, outcomes, buffers, strict=True):
        if isinstance(outcome, Hit):
            assert buffer == truth(key)
    return outcomes


def test_a_long_prefix_lies_on_all_drives(pool: Pool) -> None:
    """Consecutive runs go to different drives, each block to one, and one restore reads from
    all of them at once."""
    pool.run_of(4)
    keys = keys_of(24)
    pool.save_all(keys)
    assert all(len(drives) == 1 for drives in pool.where(keys))
    assert pool.blocks() == [8, 8, 8]
    pool.forget_memory()
    pool.run_of(4)
    restore, _ = pool.start(keys)
    lanes = {lane.tier for lane, _ in pool.executor._jobs if lane.kind is Kind.LOAD}
    assert lanes == {"drive0", "drive1", "drive2"}
    pool.settle()
    assert restore.usable_blocks == 24


def test_memory_and_one_drive_are_ranks_of_one() -> None:
    """The façade shows ranks, and the same levels flat."""
    one = Pool(drives=2)
    assert [[level.name for level in rank.levels] for rank in one.store.ranks()] == [
        ["upper"],
        ["drive0", "drive1"],
    ]
    assert [level.name for level in one.store.levels()] == ["upper", "drive0", "drive1"]


def test_a_stuck_drive_holds_up_nobody(pool: Pool) -> None:
    """Its run hangs; the others go on writing, and nothing more is given to it."""
    pool.run_of(2)
    stuck = pool.hang("drive1")
    pool.save_all(keys_of(24))
    assert len(stuck) == 1, "no second run for a drive that has not ended its first"
    assert (pool.blocks()[1], sum(pool.blocks())) == (0, 22), "all but the run that hangs"
    pool.unhang()
    pool.settle()
    assert sum(pool.blocks()) == 24


def test_a_drive_that_is_busy_reading_is_spared(pool: Pool) -> None:
    """Of two drives whose turn it could be, the one with less to do takes the run."""
    pool.run_of(1)
    keys = keys_of(3)
    pool.save_all(keys)
    pool.forget_memory()
    for number in (0, 1):
        key = next(key for key, held in zip(keys, pool.where(keys), strict=True) if number in held)
        pool.start([key])
    pool.executor.hold()  # both read
    pool.save_all(keys_of(1, salt=1))
    assert pool.where(keys_of(1, salt=1)) == [{2}]
    pool.executor.unhold()


def test_a_hanging_write_is_told_and_its_drive_rests(pool: Pool) -> None:
    """A write has a deadline as a read has; what it holds comes back when it ends."""
    pool.save(keys_of(4))
    pool.executor.step()
    pool.store.poll()
    pool.executor.hold()
    pool.clock.advance(31)
    pool.store.poll()
    assert reasons(pool, Degraded) == [Reason.TIMEOUT]
    pool.clock.advance(1000)
    pool.store.poll()
    assert len(pool.told(Degraded)) == 1, "told once"


def test_losing_a_drive_loses_only_its_blocks(pool: Pool) -> None:
    """Its blocks are misses and are stored anew elsewhere; all others are hits."""
    pool.run_of(4)
    keys = keys_of(24)
    pool.save_all(keys)
    lost = {i for i, drives in enumerate(pool.where(keys)) if drives == {1}}
    assert len(lost) == 8

    def dead() -> Iterator[tuple[int, bytes]]:
        raise TierFault("no such device", tier="drive1")

    pool.drives[1].tier.scan = dead
    for position in range(24):
        outcomes = read_from_drives(pool, keys[position : position + 1])
        assert (outcomes == [Miss()]) == (position in lost)
    assert [e.tier for e in pool.told(Degraded)] == ["drive1"] * 24
    pool.save_all(keys)
    assert read_from_drives(pool, keys) == [Hit(f"drive{min(d)}") for d in pool.where(keys)]


def test_a_pool_whose_every_drive_is_dead_does_not_start(pool: Pool) -> None:
    """An empty rank would be a cache that silently keeps nothing."""
    dead = Pool(drives=2)
    for drive in dead.drives:
        drive.tier.scan = lambda: (_ for _ in ()).throw(TierFault("gone", tier="x"))
    with pytest.raises(TierFault, match="gone"):
        dead.open()


def test_draining_a_drive_keeps_its_blocks_and_gives_it_no_new_ones(pool: Pool) -> None:
    """What it holds is read until it is gone; new blocks go to the others."""
    pool.run_of(2)
    old, new = keys_of(12), keys_of(12, salt=1)
    pool.save_all(old)
    before = pool.blocks()
    assert pool.store.drain("drive0") == before[0] > 0
    pool.save_all(new)
    assert pool.blocks()[0] == before[0]
    assert all(0 not in drives for drives in pool.where(new))
    assert all(isinstance(o, Hit) for o in read_from_drives(pool, old))


def test_draining_a_tier_that_is_not_there_says_which_are(pool: Pool) -> None:
    """A typing error drains nothing."""
    with pytest.raises(TierError, match="drive7") as caught:
        pool.store.drain("drive7")
    assert "drive0" in caught.value.remedy


def test_a_drive_that_cannot_write_costs_its_run_and_the_others_go_on(pool: Pool) -> None:
    """Its blocks stay readable, its run is counted, the rest of the queue goes elsewhere."""
    pool.run_of(2)
    old = keys_of(6)
    pool.save_all(old)
    pool.drives[2].tier.faults.write_error = TierFull("no space", tier="drive2")
    pool.save_all(keys_of(12, salt=1))
    skipped = pool.told(Skipped)
    assert sum(event.blocks for event in skipped) == 2
    assert {event.tier for event in skipped} == {"drive"}
    assert reasons(pool, Degraded) == [Reason.FULL]
    assert all(isinstance(o, Hit) for o in read_from_drives(pool, old))


def test_repeated_faults_fence_a_drive_until_a_trial_works(pool: Pool) -> None:
    """A drive that fails whenever it is tried is not tried with blocks of requests any more,
    but once a minute with one of the store's own, which leaves nothing behind."""
    pool.drives[0].tier.faults.write_error = TierFault("bad", tier="drive0")
    for salt in range(FAULTS_TO_FENCE):
        pool.save_all(keys_of(12, salt=salt))
        pool.save_all(keys_of(1, salt=100 + salt))
        pool.save_all(keys_of(1, salt=200 + salt))
        pool.clock.advance(81)
    assert reasons(pool, Fenced) == [Reason.IO_ERROR]
    trust = pool.level(0).trust
    pool.pass_time(61)
    assert trust.fenced(Fence.FAULTS), "the trial fails while the drive does"
    pool.drives[0].tier.faults.clear()
    headers = dict(pool.drives[0].tier.scan())
    pool.pass_time(59)
    assert trust.fenced(Fence.FAULTS), "not before it is due"
    pool.pass_time(2)
    assert not trust.fenced(Fence.FAULTS)
    assert len(pool.told(Unfenced)) == 1
    assert dict(pool.drives[0].tier.scan()) == headers
    assert pool.level(0).writable(pool.clock())


@pytest.mark.parametrize("flaw", ["flip", "lost", "short"])
def test_a_trial_that_reads_back_something_else_leaves_the_fence(pool: Pool, flaw: str) -> None:
    """Writing without an error is not enough."""
    level = pool.level(0)
    level.trust.fence(Fence.FAULTS, Reason.IO_ERROR, "as before")
    slots = set(range(16))
    faults = pool.drives[0].tier.faults
    match flaw:
        case "flip":
            faults.flip_on_read |= slots
        case "lost":
            faults.lose_write |= slots
        case "short":
            faults.short_read |= dict.fromkeys(slots, 7)
    pool.pass_time(61)
    pool.pass_time(61)
    assert level.trust.fenced(Fence.FAULTS)


def test_a_block_on_a_drive_that_rests_is_stored_again_and_then_is_there_once(pool: Pool) -> None:
    """While a drive is not read, its blocks are computed and stored on another; when it comes
    back, no block is there twice."""
    pool.run_of(1)
    keys = keys_of(3)
    pool.save_all(keys)
    pool.forget_memory()
    pool.level(0).trust.read_failed(Reason.IO_ERROR, pool.clock())
    pool.save_all(keys)
    assert all(drives and drives <= {1, 2} for drives in pool.where(keys))
    pool.clock.advance(60)
    pool.store.check_invariants()
    assert dict(pool.drives[0].tier.scan()) == {}, "the older copy's header is erased"
    assert all(isinstance(o, Hit) for o in read_from_drives(pool, keys))


def test_of_two_copies_on_two_drives_the_newer_counts_after_a_restart(pool: Pool) -> None:
    """A drive was away for a day and comes back with a block that was stored anew meanwhile:
    the newer copy stays, the older one's header is erased, and the event counts it."""
    keys = keys_of(1)
    away = Pool(drives=2, upper=0)
    away.save_all(keys)
    first = min(away.where(keys)[0])
    other = 1 - first
    kept = dict(away.drives[first].tier.inner.scan())
    away.store.clear()
    away.settle()
    away.clock.advance(86_400)
    away.level(first).trust.draining = True
    away.save_all(keys)
    assert away.where(keys) == [{other}]
    for slot, header in kept.items():
        away.drives[first].tier.inner.commit([slot], [header])
    away.open()
    assert away.where(keys) == [{other}]
    assert dict(away.drives[first].tier.scan()) == {}
    assert read_from_drives(away, keys) == [Hit(f"drive{other}")]
    away.store.check_invariants()


def test_a_header_that_cannot_be_erased_at_the_start_stops_nobody(pool: Pool) -> None:
    """The older copy is on a drive that refuses writes: it leads to nothing all the same."""
    keys = keys_of(1)
    two = Pool(drives=2, upper=0)
    two.save_all(keys)
    first = min(two.where(keys)[0])
    slot, header = next(iter(two.drives[first].tier.scan()))
    two.clock.advance(1)
    two.level(first).trust.read_failed(Reason.IO_ERROR, two.clock())
    two.drives[first].tier.faults.erase_error = TierFault("read only", tier="x")
    two.save_all(keys)
    assert dict(two.drives[first].tier.scan()) == {slot: header}
    two.open()
    assert two.where(keys) == [{1 - first}]
    two.store.check_invariants()


def test_a_write_budget_that_is_used_up_stops_writing_and_not_reading() -> None:
    """Blocks beyond it are counted as such; time brings bytes back; a restart does not."""
    day = Endurance(day_bytes=2 * SIZE)
    pool = Pool(drives=2, upper=0, slots=32, endurance=day)
    old = keys_of(4)
    pool.save_all(old)
    assert sum(pool.blocks()) == 4
    pool.save_all(keys_of(6, salt=1))
    assert sum(pool.blocks()) == 4
    assert sum(e.blocks for e in pool.told(Skipped)) == 6
    assert set(reasons(pool, Skipped)) == {Reason.WORN}
    assert pool.read(old)[0] == [Hit(f"drive{min(d)}") for d in pool.where(old)]
    pool.open()  # a crash: nothing was settled
    pool.save_all(keys_of(6, salt=2))
    assert sum(pool.blocks()) == 4, "a restart gives nothing back"
    pool.clock.advance(86_400)
    pool.save_all(keys_of(6, salt=3))
    assert sum(pool.blocks()) == 8
    pool.store.check_invariants()


def test_a_drive_over_budget_leaves_its_share_to_the_others() -> None:
    """One worn drive does not stop the pool."""
    pool = Pool(drives=2, slots=32)
    pool.drives[0].endurance = Endurance(total_bytes=3 * SIZE)
    pool.drives[0].account = None
    pool.open()
    pool.save_all(keys_of(20))
    assert pool.blocks()[0] <= 3
    assert sum(pool.blocks()) == 20
    assert pool.told(Skipped) == []


def test_nothing_is_spent_before_the_account_is_durable() -> None:
    """A kill between grant and write must not give bytes back, so the account comes first."""
    pool = Pool(drives=1, upper=0, slots=32, endurance=Endurance(day_bytes=8 * SIZE))
    pool.save(keys_of(2))
    assert pool.blocks() == [0]
    assert pool.drives[0].account is None
    pool.executor.step()
    assert pool.drives[0].account is not None
    assert pool.drives[0].account.left_bytes == 0, "the grant has left the durable bucket"
    assert pool.blocks() == [0]
    pool.settle()
    assert pool.blocks() == [2]


def test_an_account_that_cannot_be_kept_stops_the_writing() -> None:
    """Without a durable account nothing is granted; it is tried again later."""
    pool = Pool(drives=1, upper=0, slots=32, endurance=Endurance(day_bytes=8 * SIZE))
    pool.drives[0].ledger_error = TierFault("cannot write the ledger", tier="drive0")
    pool.save_all(keys_of(2))
    assert pool.blocks() == [0]
    assert pool.drives[0].budget is not None
    assert pool.drives[0].budget.usable_bytes == 0
    assert reasons(pool, Degraded) == [Reason.IO_ERROR]
    pool.drives[0].ledger_error = None
    pool.clock.advance(6)
    pool.save_all(keys_of(2))
    assert pool.blocks() == [2]


def test_closing_settles_the_accounts() -> None:
    """A clean end keeps what was granted and not spent."""
    pool = Pool(drives=2, upper=0, slots=32, endurance=Endurance(day_bytes=8 * SIZE))
    pool.save_all(keys_of(2))
    assert pool.store.close(flush_s=1.0)
    left = sum(d.account.left_bytes for d in pool.drives if d.account)
    assert left + 2 * SIZE == 16 * SIZE


def test_closing_leaves_the_stuck_drive_and_closes_the_others(pool: Pool) -> None:
    """A hung drive cost the clean end of all others: their headers may not be durable."""
    closed: list[str] = []
    for drive in pool.drives:
        drive.tier.inner.close = lambda name=drive.tier.name: closed.append(name)
    pool.hang("drive1")
    pool.save(keys_of(24))
    pool.time_passes_while_waiting()
    assert not pool.store.close(flush_s=1.0)
    assert sorted(closed) == ["drive0", "drive2"]
    assert {e.tier for e in pool.told(Degraded)} == {"upper", "drive1"}, "it reads from memory"
    pool.unhang()


def test_closing_waits_only_so_long_for_a_tier_that_does_not_close(pool: Pool) -> None:
    """`fdatasync` of a dying drive hangs: the process ends all the same, and says so."""
    pool.hang("drive2")
    pool.time_passes_while_waiting()
    began_s = pool.clock()
    assert pool.store.close(flush_s=1.0), "no caller's buffer is touched"
    assert pool.clock() - began_s < 10
    assert [e.tier for e in pool.told(Degraded)] == ["drive2"]
    pool.unhang()


@pytest.fixture
def tended() -> Pool:
    """Two drives whose space and health are looked at."""
    pool = Pool(drives=2, looked_after=True)
    pool.settle()
    return pool


def test_a_file_system_below_its_floor_is_not_written_until_there_is_space(tended: Pool) -> None:
    """Others fill the file system: within half a minute the slab is left alone, and read."""
    old = keys_of(4)
    tended.save_all(old)
    for drive in tended.drives:
        drive.space = Space(free_bytes=GIB - 1, floor_bytes=GIB)
    tended.pass_time(31)
    tended.save_all(keys_of(4, salt=1))
    assert reasons(tended, Fenced) == [Reason.FULL] * 2
    assert reasons(tended, Skipped) == [Reason.FULL] * 4
    assert all(isinstance(o, Hit) for o in read_from_drives(tended, old))
    tended.settle()
    for drive in tended.drives:
        drive.space = Space(free_bytes=GIB, floor_bytes=GIB)
    tended.pass_time(31)
    tended.save_all(keys_of(4, salt=2))
    assert sum(tended.blocks()) == 8


def test_a_look_that_fails_rests_the_drive(tended: Pool) -> None:
    """A file system that cannot even say how full it is, is not written."""
    tended.drives[0].space = TierFault("input/output error", tier="drive0")
    tended.pass_time(31)
    assert [(e.tier, e.reason) for e in tended.told(Degraded)] == [("drive0", Reason.IO_ERROR)]
    assert not tended.level(0).writable(tended.clock())


@pytest.mark.parametrize(
    "health",
    [
        DriveHealth(warnings=("read only",)),
        DriveHealth(passed=False),
        DriveHealth(used_percent=100),
        DriveHealth(spare_percent=9, spare_threshold_percent=10),
    ],
)
def test_a_drive_that_calls_itself_ill_is_fenced_until_it_says_otherwise(
    tended: Pool, health: DriveHealth
) -> None:
    """It is read meanwhile; silence changes nothing."""
    healthy = DriveHealth(used_percent=3, spare_percent=100, spare_threshold_percent=10)
    silent = DriveHealth(problem="no answer")
    for said, fenced in ((health, True), (silent, True), (healthy, False)):
        tended.drives[1].health = said
        tended.pass_time(601)
        assert tended.level(1).trust.fenced(Fence.HEALTH) == fenced
    assert reasons(tended, Fenced) == [Reason.UNHEALTHY]
    assert len(tended.told(Unfenced)) == 1


@pytest.mark.parametrize(
    "health",
    [
        DriveHealth(warnings=("too hot or too cold",)),
        DriveHealth(used_percent=99, spare_percent=10, spare_threshold_percent=10, passed=True),
        DriveHealth(media_errors=3),
        DriveHealth(problem="nvme is not installed"),
        DriveHealth(spare_percent=1),
    ],
)
def test_a_drive_that_is_well_or_silent_is_written(tended: Pool, health: DriveHealth) -> None:
    """Heat passes, errors of the past were corrected, and what is unknown fences nobody."""
    tended.drives[0].health = health
    tended.pass_time(601)
    assert tended.told(Fenced) == []
    assert tended.level(0).writable(tended.clock())


def test_one_fence_lifted_leaves_the_other_standing(tended: Pool) -> None:
    """Space comes back on a drive that is also worn out."""
    tended.drives[0].health = DriveHealth(used_percent=120)
    tended.drives[0].space = Space(free_bytes=0, floor_bytes=GIB)
    tended.pass_time(601)
    tended.drives[0].space = Space(free_bytes=GIB, floor_bytes=GIB)
    tended.pass_time(31)
    assert not tended.level(0).writable(tended.clock())
    assert tended.told(Unfenced) == []


def test_what_is_known_of_drives_is_told(tended: Pool) -> None:
    """At the start and at each look, for the metrics."""
    tended.drives[0].health = DriveHealth(used_percent=3, spare_percent=90, media_errors=2)
    tended.pass_time(601)
    last = [event for event in tended.told(Examined) if event.tier == "drive0"][-1]
    assert (last.used_percent, last.spare_percent, last.media_errors) == (3, 90, 2)
    assert (last.free_bytes, last.budget_bytes) == (GIB, None)


def test_a_hanging_look_is_no_work_to_wait_for(tended: Pool) -> None:
    """A dead mount hangs `statvfs`; a flush does not wait for it, and the drive rests."""
    tended.hang("drive0")
    tended.pass_time(31)
    assert tended.store.idle
    tended.pass_time(31)
    assert [(e.tier, e.reason) for e in tended.told(Degraded)] == [("drive0", Reason.TIMEOUT)]
    tended.unhang()
