"""Scrubbing: what rots at rest is found without a request, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store_harness import SIZE, Harness, keys_of, truth

from pagoda.core.errors import TierFault
from pagoda.core.events import Degraded, Quarantined, Reason, Restored, Scrubbed, ScrubPassed
from pagoda.core.outcome import Hit
from pagoda.core.state import SlotState
from pagoda.store.executor import Kind, Runtime
from pagoda.store.scrub import Pace, ScrubPlan
from pagoda.store.store import Store, StoreConfig
from pagoda.tiers.sealed import SealedTier

FAST = 1 << 30
DAY_S = 86_400.0


class Scrubbing(Harness):
    """A harness whose store scrubs at `rate_bytes_s`."""

    rate_bytes_s = FAST

    def open(self) -> None:
        self.store = Store(
            [[SealedTier(tier)] for tier in (self.upper, self.lower) if tier.geometry.slots],
            runtime=Runtime(
                executor=self.executor,
                clock=self.clock,
                wall_ms=self.clock.wall_ms,
                observer=self.events.append,
            ),
            config=StoreConfig(scrub=ScrubPlan(rate_bytes_s=self.rate_bytes_s, every_s=DAY_S)),
        )
        self.store.rebuild()

    def rot(self, tier: str, index: int, count: int = 1) -> list[int]:
        """Flip a bit of blocks of the first prefix, at rest; returns their slots."""
        slots = [self.slot(tier, key) for key in keys_of(index + count)[index:]]
        for slot in slots:
            self.tier(tier).flip_at_rest(slot, size_bytes=SIZE, at=7)
        return slots

    def tier(self, name: str):
        """A tier by its name."""
        return self.upper if name == "upper" else self.lower

    def next_pass(self) -> None:
        """A day later: everything is verified again."""
        self.clock.advance(DAY_S)
        self.settle()


@pytest.fixture
def harness() -> Iterator[Scrubbing]:
    """Four blocks in both tiers, verified once."""
    harness = Scrubbing()
    harness.save_all(keys_of(4))
    harness.next_pass()
    harness.events.clear()
    yield harness
    harness.tier("upper").faults.clear()
    harness.executor.unhold()
    harness.settle()
    assert harness.store.idle
    harness.store.check_invariants()


@pytest.mark.parametrize("tier", ["upper", "lower"])
def test_a_block_that_rots_at_rest_is_found_without_a_request(
    harness: Scrubbing, tier: str
) -> None:
    """It is not found any more, its slot leaves service, its header is erased; the rest stays."""
    (slot,) = harness.rot(tier, 2)
    harness.next_pass()
    level = next(level for level in harness.store.levels() if level.name == tier)
    assert level.state.slot_of(keys_of(4)[2]) is None
    assert level.state.state_of(slot) is SlotState.QUARANTINED
    assert slot not in dict(harness.tier(tier).scan())
    assert harness.told(Quarantined) == [Quarantined(tier=tier, slots=1, reason=Reason.CORRUPT)]
    assert harness.store.counts()[tier] == 3
    assert sum(event.bad for event in harness.told(Scrubbed) if event.tier == tier) == 1
    assert [e.bad for e in harness.told(ScrubPassed) if e.tier == tier] == [1]


def test_sound_blocks_are_counted_and_untouched(harness: Scrubbing) -> None:
    """A clean pass changes no residency, no order of eviction, and says what it read."""
    harness.next_pass()
    assert harness.store.counts() == {"upper": 4, "lower": 4}
    assert {(e.tier, e.blocks, e.bad) for e in harness.told(ScrubPassed)} == {
        ("upper", 4, 0),
        ("lower", 4, 0),
    }
    assert sum(event.size_bytes for event in harness.told(Scrubbed)) == 8 * SIZE
    assert harness.told(Restored) == []


def test_nothing_is_read_before_the_next_pass_is_due(harness: Scrubbing) -> None:
    """Between two passes a small tier rests."""
    harness.clock.advance(DAY_S - 1)
    harness.settle()
    assert harness.told(Scrubbed) == []
    harness.clock.advance(1)
    harness.settle()
    assert harness.told(Scrubbed) != []


def test_a_rate_of_zero_reads_nothing() -> None:
    """Switched off."""
    off = Harness()
    off.save_all(keys_of(4))
    off.clock.advance(DAY_S)
    off.settle()
    assert off.told(Scrubbed) == []


def test_the_rate_bounds_what_is_read() -> None:
    """Over any time no more than the rate, a second's burst and one order beyond; and over a
    long time no less."""

    class Slow(Scrubbing):
        rate_bytes_s = SIZE // 2  # a block is larger than the bucket

    slow = Slow(upper=0, lower=32)
    slow.store.levels()[0].run_blocks = 2
    slow.save_all(keys_of(32))
    slow.clock.advance(DAY_S)
    slow.events.clear()
    for quarter in range(100):
        slow.settle()
        read = sum(event.size_bytes for event in slow.told(Scrubbed))
        assert read <= slow.rate_bytes_s * (quarter / 4 + 1) + 2 * SIZE
        slow.clock.advance(0.25)
    assert read >= slow.rate_bytes_s * 24


def test_pace_gains_nothing_by_a_clock_that_goes_back() -> None:
    """The bucket fills by time that has passed, once."""
    pace = Pace(100, now_s=10.0)
    pace.spend(150)
    assert not pace.ready(10.0)
    assert not pace.ready(0.0)
    assert not pace.ready(10.5)
    assert pace.ready(10.6)


def test_a_pass_keeps_still_while_the_tier_loads(harness: Scrubbing) -> None:
    """With a load under way no order of the scrub is sent to that tier."""
    harness.clock.advance(DAY_S)
    restore, _ = harness.start(keys_of(2))
    harness.store.poll()
    kinds = {(lane.tier, lane.kind) for lane, _ in harness.executor._jobs}
    assert ("upper", Kind.LOAD) in kinds
    assert ("upper", Kind.SCRUB) not in kinds
    assert ("lower", Kind.SCRUB) in kinds, "the other tier goes on"
    harness.settle()
    assert restore.outcomes == [Hit("upper")] * 2
    assert {event.tier for event in harness.told(ScrubPassed)} == {"upper", "lower"}


def test_a_block_that_is_being_scrubbed_can_be_read_and_is_not_reused(harness: Scrubbing) -> None:
    """The scrub's lease is one more reader."""
    harness.clock.advance(DAY_S)
    harness.store.poll()
    assert harness.store.levels()[0].state.lease_count() == 4
    harness.executor.hold()
    harness.save_all(keys_of(16, salt=1))  # wants every slot
    state = harness.store.levels()[0].state
    assert state.prefix(keys_of(4)) == [harness.slot("upper", key) for key in keys_of(4)]
    outcomes, buffers = harness.read(keys_of(4))
    assert outcomes == [Hit("upper")] * 4
    assert bytes(buffers[3]) == bytes(truth(keys_of(4)[3]))


def test_an_evicted_or_replaced_block_is_passed_over(harness: Scrubbing) -> None:
    """What goes while a pass runs is no failure: the pass ends, nothing is quarantined."""
    harness.store.levels()[0].run_blocks = 1
    harness.clock.advance(DAY_S)
    harness.store.poll()
    harness.store.clear()
    harness.settle()
    harness.clock.advance(1)
    harness.settle()
    assert harness.told(Quarantined) == []
    assert len(harness.told(ScrubPassed)) == 2


def test_an_unreadable_block_rests_the_tier_and_the_pass(harness: Scrubbing) -> None:
    """An I/O error pauses reads; the pass goes on when they do."""
    harness.store.levels()[0].run_blocks = 1
    slot = harness.slot("upper", keys_of(4)[0])
    harness.upper.faults.read_error[slot] = TierFault("bad sector", tier="upper")
    harness.clock.advance(DAY_S)
    while not harness.told(Degraded):
        harness.store.poll()
        assert harness.executor.step()
        harness.store.poll()
    before = len(harness.told(Scrubbed))
    harness.settle()
    assert [e for e in harness.told(Scrubbed)[before:] if e.tier == "upper"] == []
    harness.clock.advance(60)
    harness.settle()
    assert [e.bad for e in harness.told(ScrubPassed) if e.tier == "upper"] == [1]


def test_a_read_that_hangs_takes_its_blocks_out_and_holds_up_nothing(harness: Scrubbing) -> None:
    """After its deadline the blocks are not found; when the thread returns they are free,
    whatever it brings."""
    harness.rot("upper", 1)
    harness.clock.advance(DAY_S)
    harness.store.poll()
    harness.executor.hold()
    harness.clock.advance(31)
    harness.store.poll()
    assert harness.store.levels()[0].state.prefix(keys_of(4)) == []
    assert {event.reason for event in harness.told(Degraded)} == {Reason.TIMEOUT}
    harness.executor.unhold()
    harness.settle()
    assert harness.store.levels()[0].state.free_count() == 16
    assert harness.told(Quarantined) == harness.told(Scrubbed) == []


def test_a_block_in_use_is_left_alone(harness: Scrubbing) -> None:
    """Whoever holds it verifies it; the pass does not wait."""
    state = harness.store.levels()[0].state
    held = state.prefix(keys_of(1))
    state.lease(held)
    harness.next_pass()
    assert {(e.tier, e.blocks) for e in harness.told(ScrubPassed)} == {("upper", 3), ("lower", 4)}
    state.release(held)


def test_every_process_begins_elsewhere() -> None:
    """Restarted often, a store still reaches every block: where a pass begins is the time's."""
    firsts = set()
    for wait_s in range(0, 64):
        one = Scrubbing(upper=0, lower=16)
        one.clock.advance(wait_s * 0.0137)
        one.save_all(keys_of(16))
        one.store.levels()[0].run_blocks = 1
        one.clock.advance(DAY_S)
        one.store.poll()
        leases = one.store.levels()[0].state.leases
        firsts.add(int(leases.argmax()))
        one.settle()
    assert len(firsts) > 8


def test_progress_is_told(harness: Scrubbing) -> None:
    """The share of a pass that is done; 1 between two."""
    assert harness.store.scrub_progress() == {"upper": 1.0, "lower": 1.0}
    harness.store.levels()[0].run_blocks = 1
    harness.clock.advance(DAY_S)
    harness.store.poll()
    assert harness.store.scrub_progress()["upper"] == 0.25
