"""Whether a tier may be read and written: pauses, fences, loss."""

from __future__ import annotations

from pagoda.core.events import Degraded, Event, Fenced, Reason, Unfenced
from pagoda.store.trust import FAULTS_TO_FENCE, Fence, Trust


def test_a_pause_doubles_with_each_failure_and_starts_anew_after_a_success() -> None:
    """5 s, 10 s, … 80 s; what fails during a pause belongs to the failure that began it."""
    trust, now_s = Trust("drive", lambda event: None), 0.0
    lengths = []
    for _ in range(6):
        trust.read_failed(Reason.TIMEOUT, now_s)
        trust.read_failed(Reason.TIMEOUT, now_s)
        began_s = now_s
        while not trust.readable(now_s):
            now_s += 1
        lengths.append(now_s - began_s)
    assert lengths == [5, 10, 20, 40, 80, 80]
    trust.read_succeeded()
    trust.read_failed(Reason.TIMEOUT, now_s)
    assert trust.readable(now_s + 5)


def test_directions_rest_apart() -> None:
    """A drive that cannot write is read, and the other way round."""
    trust = Trust("drive", lambda event: None)
    trust.write_failed(Reason.IO_ERROR, "broken", 0.0)
    assert trust.readable(0.0)
    assert not trust.writable(0.0)


def test_successes_between_failures_keep_a_tier_in_service() -> None:
    """Only failures in a row fence; a full or read-only medium is no faulty one."""
    events: list[Event] = []
    trust = Trust("drive", events.append)
    for turn in range(3 * FAULTS_TO_FENCE):
        trust.write_failed(Reason.FULL, "no space", turn * 100.0)
    for turn in range(3 * FAULTS_TO_FENCE):
        if turn % (FAULTS_TO_FENCE - 1) == 0:
            trust.read_succeeded()
        trust.read_failed(Reason.IO_ERROR, 1e4 + turn * 100.0)
    assert {type(event) for event in events} == {Degraded}


def test_late_reads_fence_as_errors_do() -> None:
    """A drive that stalls again and again is not filled any further."""
    events: list[Event] = []
    trust = Trust("drive", events.append)
    for turn in range(FAULTS_TO_FENCE):
        trust.read_failed(Reason.TIMEOUT, turn * 100.0)
    assert [type(event) for event in events] == [Degraded] * FAULTS_TO_FENCE + [Fenced]
    assert not trust.writable(1e6)
    trust.lift(Fence.FAULTS)
    assert trust.writable(turn * 100.0), "and the pauses are over"
    assert trust.readable(turn * 100.0)
    assert isinstance(events[-1], Unfenced)


def test_a_lost_tier_is_left_alone() -> None:
    """Neither read nor written, and that is told."""
    events: list[Event] = []
    trust = Trust("drive", events.append)
    trust.lose("no such device")
    assert not trust.readable(1e9)
    assert not trust.writable(1e9)
    assert len(events) == 1


def test_a_refusal_names_what_stands_in_the_way() -> None:
    """The word that blocks are counted under when nothing can be written."""
    trust = Trust("drive", lambda event: None)
    assert trust.refusal() is Reason.READ_ONLY
    trust.fence(Fence.HEALTH, Reason.UNHEALTHY, "worn out")
    assert trust.refusal() is Reason.UNHEALTHY
    trust.fence(Fence.SPACE, Reason.FULL, "no space")
    assert trust.refusal() is Reason.FULL
