"""The circuit breaker, on a clock that stands still."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from pagoda.core.errors import TierFault, TierFull, TierTimeout
from pagoda.testing.clock import FakeClock
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared
from pagoda.tiers.remote.breaker import Breaker, GuardedShared, State, Tolerance

TOLERANCE = Tolerance(threshold=3, first_pause_s=1.0, longest_pause_s=8.0, deadline_s=2.0)
ERROR = TierFault("the store is down", tier="remote")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> Breaker:
    return Breaker(TOLERANCE, clock=clock, rng=random.Random(7))


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        assert breaker.enter()
        breaker.failed()


def pause_of(breaker: Breaker, clock: FakeClock) -> float:
    """How long an open breaker refuses, found by waiting."""
    waited = 0.0
    while breaker.state is State.OPEN:
        clock.advance(1 / 64)
        waited += 1 / 64
    return waited


def test_it_opens_after_failures_in_a_row(breaker):
    """A success between them starts the count anew."""
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert breaker.state is State.CLOSED
    fail(breaker, 1)
    assert breaker.state is State.OPEN
    assert not breaker.enter()
    assert breaker.trips == 1


def test_pauses_double_up_to_the_longest_and_are_jittered(breaker, clock):
    """Each lies between half and all of 1, 2, 4, 8, 8… seconds."""
    fail(breaker, 3)
    pauses = []
    for _ in range(6):
        pauses.append(pause_of(breaker, clock))
        fail(breaker, 1)
    for pause, longest in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert longest / 2 <= pause <= longest + 1 / 64
    assert len({pause / longest for pause, longest in zip(pauses[3:], [8] * 3, strict=True)}) > 1


def test_nodes_do_not_come_back_in_step(clock):
    """Two nodes with generators of their own pause for different times."""
    pauses = set()
    for seed in range(8):
        breaker = Breaker(TOLERANCE, clock=clock, rng=random.Random(seed))
        fail(breaker, 3)
        pauses.add(pause_of(breaker, clock))
    assert len(pauses) >= 6


def test_one_call_tries_and_closes_it_or_opens_it_again(breaker, clock):
    """While the trial is under way, others are refused."""
    fail(breaker, 3)
    clock.advance(1)
    assert breaker.state is State.HALF_OPEN
    assert breaker.enter()
    assert not breaker.enter()
    assert not breaker.admits()
    breaker.failed()
    assert breaker.state is State.OPEN
    clock.advance(2)
    assert breaker.enter()
    breaker.succeeded()
    assert breaker.state is State.CLOSED
    fail(breaker, 2)
    assert breaker.state is State.CLOSED, "the count began anew"


def test_after_a_success_pauses_start_short_again(breaker, clock):
    """The store's past is forgiven."""
    fail(breaker, 3)
    for _ in range(3):
        clock.advance(8)
        fail(breaker, 1)
    clock.advance(8)
    assert breaker.enter()
    breaker.succeeded()
    fail(breaker, 3)
    assert pause_of(breaker, clock) <= 1 + 1 / 64


def test_a_trial_that_never_returns_does_not_keep_it_open(breaker, clock):
    """After two deadlines another call may try."""
    fail(breaker, 3)
    clock.advance(1)
    assert breaker.enter()
    clock.advance(3.9)
    assert not breaker.admits()
    clock.advance(0.1)
    assert breaker.enter()


def test_looking_changes_nothing(breaker, clock):
    """Only entering takes the trial."""
    fail(breaker, 3)
    clock.advance(1)
    assert breaker.admits()
    assert breaker.admits()
    assert breaker.enter()


def test_exactly_one_of_many_threads_gets_the_trial(breaker, clock):
    """Entering is atomic."""
    fail(breaker, 3)
    clock.advance(1)
    start = threading.Barrier(16)
    entered: list[bool] = []

    def work() -> None:
        start.wait()
        entered.append(breaker.enter())

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entered) == [False] * 15 + [True]


# Around a store.


class Slow(MemoryShared):
    """Answers after some time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.seconds = 0.0

    def has(self, names):
        self.clock.advance(self.seconds)
        return super().has(names)


class Broken(MemoryShared):
    """Raises what no tier should."""

    def has(self, names):
        raise KeyError(names)

    def names(self, prefix: str) -> Iterator[str]:
        yield prefix
        raise KeyError(prefix)


def guarded(inner, clock: FakeClock) -> GuardedShared:
    return GuardedShared(inner, clock=clock, rng=random.Random(7), tolerance=TOLERANCE)


def test_an_open_breaker_spares_the_store(clock):
    """Calls do not reach it, and say why."""
    inner = FaultyShared(MemoryShared())
    guard = guarded(inner, clock)
    inner.faults.read_error = ERROR
    for _ in range(3):
        with pytest.raises(TierFault, match="is down"):
            guard.get(["a/b"], 10)
    inner.faults.clear()
    with pytest.raises(TierFault, match="left alone"):
        guard.has(["a/b"])
    clock.advance(1)
    assert guard.has(["a/b"]) == [False]


def test_a_full_store_is_still_read(clock):
    """Writes and reads are judged apart."""
    inner = FaultyShared(MemoryShared())
    guard = guarded(inner, clock)
    guard.put(["a/b"], [[memoryview(b"x")]])
    inner.faults.write_error = TierFull("full", tier="remote")
    for _ in range(3):
        with pytest.raises(TierFull):
            guard.put(["a/c"], [[memoryview(b"x")]])
    assert guard.writes.state is State.OPEN
    assert guard.get(["a/b"], 10) == [memoryview(b"x")]


def test_an_answer_after_the_deadline_is_a_timeout(clock):
    """And counts as a failure; one in time does not."""
    slow = Slow(clock)
    guard = guarded(slow, clock)
    slow.seconds = 2.0
    assert guard.has(["a/b"]) == [False]
    slow.seconds = 2.1
    for _ in range(3):
        with pytest.raises(TierTimeout, match="after its deadline"):
            guard.has(["a/b"])
    assert guard.reads.state is State.OPEN


def test_a_store_that_breaks_its_contract_is_a_fault(clock):
    """Whatever it raises, without quoting it."""
    guard = guarded(Broken(), clock)
    with pytest.raises(
        TierFault, match=r"^remote: it raised KeyError, which is no error of a tier$"
    ):
        guard.has(["secret/name"])
    with pytest.raises(TierFault, match="KeyError"):
        list(guard.names("a/"))
