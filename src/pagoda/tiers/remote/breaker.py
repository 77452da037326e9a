"""The circuit breaker: a shared store that fails is left alone, then tried with one call.

Closed: calls pass. After `threshold` failures in a row it opens: calls are refused at once,
for a time that doubles with each failed trial and is drawn between half and all of itself,
so that the nodes of a fleet do not come back in step. Then one call is let through as a trial
(half-open): it closes the breaker, or opens it again. Reference: M. Nygard, Release It!, 2007;
jitter: M. Brooker, Exponential Backoff and Jitter, 2015.

Reads and writes have a breaker each: a store that is full, or a replica, goes on being read.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from pagoda.core.errors import TierError, TierFault, TierTimeout
from pagoda.tiers.port import held_to_its_errors
from pagoda.tiers.remote.port import SharedTier

Result = TypeVar("Result")


class State(StrEnum):
    """What a breaker does with calls."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """When a breaker opens and for how long. `deadline_s` is what one call may take."""

    threshold: int = 3
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    deadline_s: float = 2.0


class Breaker:
    """One direction's state. Safe to use from several threads.

    `rng` is asked for the jitter, `clock` for monotonic seconds.
    """

    def __init__(
        self, tolerance: Tolerance, *, clock: Callable[[], float], rng: random.Random
    ) -> None:
        self._tolerance = tolerance
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._failures = 0  # in a row
        self._opened = 0  # times in a row that it opened without a success between
        self._until_s: float | None = None  # open until then; None while closed
        self._trial_until_s: float | None = None  # a trial is under way, for that long at most
        self.trips = 0

    @property
    def state(self) -> State:
        """What the next call meets."""
        with self._lock:
            return self._state()

    def admits(self) -> bool:
        """Whether a call could pass now. Changes nothing."""
        with self._lock:
            return self._admits()

    def enter(self) -> bool:
        """Ask to make a call; True binds the caller to report how it went."""
        with self._lock:
            if not self._admits():
                return False
            if self._until_s is not None:
                self._trial_until_s = self._clock() + 2 * self._tolerance.deadline_s
            return True

    def succeeded(self) -> None:
        """A call went well: the breaker is closed."""
        with self._lock:
            self._failures = self._opened = 0
            self._until_s = self._trial_until_s = None

    def failed(self) -> None:
        """A call failed or was late."""
        with self._lock:
            self._failures += 1
            on_trial = self._state() is State.HALF_OPEN
            if on_trial or (self._until_s is None and self._failures >= self._tolerance.threshold):
                self._open()

    def _state(self) -> State:
        if self._until_s is None:
            return State.CLOSED
        return State.OPEN if self._clock() < self._until_s else State.HALF_OPEN

    def _admits(self) -> bool:
        state = self._state()
        if state is not State.HALF_OPEN:
            return state is State.CLOSED
        # A trial whose thread never comes back must not keep the breaker open for ever.
        return self._trial_until_s is None or self._clock() >= self._trial_until_s

    def _open(self) -> None:
        longest_s = min(
            self._tolerance.first_pause_s * 2 ** min(self._opened, 30),
            self._tolerance.longest_pause_s,
        )
        self._until_s = self._clock() + longest_s * self._rng.uniform(0.5, 1.0)
        self._trial_until_s = None
        self._opened += 1
        self.trips += 1


class GuardedShared:
    """A SharedTier behind its breakers; a call that returns after its deadline has failed."""

    def __init__(
        self,
        inner: SharedTier,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        tolerance: Tolerance | None = None,
    ) -> None:
        self.inner = inner
        self.name = inner.name
        self.tolerance = tolerance or Tolerance()
        self.reads = Breaker(self.tolerance, clock=clock, rng=rng)
        self.writes = Breaker(self.tolerance, clock=clock, rng=rng)
        self._clock = clock

    def put(self, names: Sequence[str], values: Sequence[Sequence[memoryview]]) -> None:
        self._call(self.writes, lambda: self.inner.put(names, values))

    def get(self, names: Sequence[str], limit_bytes: int) -> list[memoryview | None]:
        return self._call(self.reads, lambda: self.inner.get(names, limit_bytes))

    def has(self, names: Sequence[str]) -> list[bool]:
        return self._call(self.reads, lambda: self.inner.has(names))

    def drop(self, names: Sequence[str]) -> None:
        self._call(self.writes, lambda: self.inner.drop(names))

    def names(self, prefix: str) -> Iterator[str]:
        """Not behind a breaker: a listing is asked for by people, however long it takes."""
        with held_to_its_errors(self.name):
            yield from self.inner.names(prefix)

    def close(self) -> None:
        self.inner.close()

    def _call(self, breaker: Breaker, call: Callable[[], Result]) -> Result:
        if not breaker.enter():
            raise TierFault(
                f"{self.name}: left alone after repeated failures",
                tier=self.name,
                remedy="it is tried again by itself; see the first failure in the log",
            )
        started_s = self._clock()
        try:
            with held_to_its_errors(self.name):
                result = call()
        except TierError:
            breaker.failed()
            raise
        late_s = self._clock() - started_s - self.tolerance.deadline_s
        if late_s > 0:
            breaker.failed()
            raise TierTimeout(
                f"{self.name}: the answer came {late_s:.3f} s after its deadline",
                tier=self.name,
                deadline_s=self.tolerance.deadline_s,
                remedy="raise remote.deadline, or look at the network to the store",
            )
        breaker.succeeded()
        return result
