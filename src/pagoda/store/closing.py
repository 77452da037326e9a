"""Letting go of a store's tiers at its end, however stuck one of them is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagoda.core.errors import TierError
from pagoda.core.events import Degraded, Reason
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.level import Level
from pagoda.store.orders import Orders
from pagoda.tiers.sealed import reason_of

WAIT_S = 0.05  # between two looks at what I/O has ended
_DEADLINE_S = 5.0


class Closing:
    """The end of the tiers: each is closed, its write account settled, as soon as no I/O thread
    touches it. Owner's thread, which waits."""

    def __init__(self, levels: Sequence[Level], *, runtime: Runtime, orders: Orders) -> None:
        self._levels = levels
        self._runtime = runtime
        self._orders = orders

    def run(self, settle: Callable[[], None]) -> bool:
        """Close all within a few seconds; `settle` takes in what I/O has ended meanwhile. False
        when I/O is stuck: its tier is told of, and left open for the process's end."""
        until_s = self._runtime.clock() + _DEADLINE_S
        left = list(self._levels)
        while True:
            for level in [level for level in left if not self._orders.touching(level.name)]:
                self._close(level)
                left.remove(level)
            if not self._orders.any() or self._runtime.clock() >= until_s:
                break
            self._runtime.executor.wait(WAIT_S)
            settle()
        for level in self._levels:
            if self._orders.touching(level.name):
                self._tell(level, Reason.TIMEOUT, "it is left open: its I/O hangs")
        return not self._orders.any()

    def _close(self, level: Level) -> None:
        account = level.wear.budget.settle(self._runtime.clock(), self._runtime.wall_ms())

        def job() -> TierError | None:
            error = level.wear.keep(account)
            try:
                level.sealed.close()
            except TierError as failure:
                return failure
            return error

        def closed(error: TierError | None) -> None:
            if error is not None:
                self._tell(level, reason_of(error), error.message)

        self._orders.send(Lane(level.name, Kind.STORE), job, closed)

    def _tell(self, level: Level, reason: Reason, detail: str) -> None:
        self._runtime.observer(Degraded(tier=level.name, reason=reason, detail=detail))
