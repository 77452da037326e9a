"""I/O orders: a job runs in an I/O thread, then the owner's thread takes in its result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pagoda.store.executor import Kind, Lane, Runtime

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Flight:
    """An order under way: the tiers that its job may touch, and whom to tell that it is late."""

    lane: Lane
    tiers: tuple[str, ...]
    until_s: float
    late: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """By when an order has to have ended, and what to do once if it has not. The order itself
    goes on: a thread in the kernel cannot be called back."""

    until_s: float
    late: Callable[[], None]


class Orders:
    """What has been sent to I/O threads and not been taken in yet.

    Jobs do not raise: the seal layer turns whatever a tier does into outcomes and typed
    errors. All methods are called by the owner alone.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._executor = runtime.executor
        self._wake = runtime.wake
        self._landed: deque[Callable[[], None]] = deque()
        self._flights: dict[_Flight, None] = {}  # in order of sending
        self._watched: dict[_Flight, None] = {}  # those that can become late, and are not yet

    @property
    def flying(self) -> int:
        """Orders under way that hold slots or buffers; a look at a drive's health holds none."""
        return sum(flight.lane.kind is not Kind.CHECK for flight in self._flights)

    def any(self) -> bool:
        """Whether anything at all is under way."""
        return bool(self._flights)

    def touching(self, tier: str) -> bool:
        """Whether a job under way may still read or write this tier."""
        return any(tier in flight.tiers for flight in self._flights)

    def busy(self, lane: Lane) -> bool:
        """Whether an order of this lane is under way."""
        return any(flight.lane == lane for flight in self._flights)

    def send(
        self,
        lane: Lane,
        job: Callable[[], Result],
        then: Callable[[Result], None],
        *,
        reads: tuple[str, ...] = (),
        due: Due | None = None,
    ) -> None:
        """Have `job` run in an I/O thread, and `then` in the owner's thread with its result.
        `reads` names tiers that the job touches besides its lane's."""
        flight = _Flight(
            lane=lane,
            tiers=(lane.tier, *reads),
            until_s=due.until_s if due else 0.0,
            late=due.late if due else _nothing,
        )
        self._flights[flight] = None
        if due:
            self._watched[flight] = None

        def land(result: Result) -> None:
            del self._flights[flight]
            self._watched.pop(flight, None)
            then(result)

        def run() -> None:
            result = job()
            self._landed.append(lambda: land(result))
            self._wake()

        self._executor.submit(lane, run)

    def take_in(self) -> None:
        """Call `then` for every order that has ended."""
        while self._landed:
            self._landed.popleft()()

    def expire(self, now_s: float) -> None:
        """Tell of every order that has just become late."""
        for flight in [flight for flight in self._watched if flight.until_s <= now_s]:
            del self._watched[flight]
            flight.late()


def _nothing() -> None:
    """An order with a deadline of its own making."""
