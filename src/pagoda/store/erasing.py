"""Erasing headers in the background, so that a restart does not find what has left service."""

from __future__ import annotations

from collections.abc import Callable

from pagoda.core.errors import TierError
from pagoda.store.executor import Kind, Lane
from pagoda.store.level import Level
from pagoda.store.orders import Due, Orders


class Eraser:
    """Owner's thread; headers are erased in I/O threads. One that cannot be erased stops the
    writing to its level for a while: what is there can still be read."""

    def __init__(self, orders: Orders, *, clock: Callable[[], float], deadline_s: float) -> None:
        self._orders = orders
        self._clock = clock
        self._deadline_s = deadline_s

    def withdraw(
        self, level: Level, slots: list[int], then: Callable[[], None] | None = None
    ) -> None:
        """Unpublish blocks at once, then erase their headers; the slots are free after that, or
        once nobody else holds them. `then` is called when the erasing has ended."""
        if slots:
            level.withdraw(slots)
            self.erase(level, slots, then)

    def erase(self, level: Level, slots: list[int], then: Callable[[], None] | None = None) -> None:
        """Erase the headers of slots that are leased for it, then give the leases back."""

        def job() -> TierError | None:
            try:
                level.sealed.free(slots)
            except TierError as error:
                return error
            return None

        def erased(error: TierError | None) -> None:
            level.state.release(slots)
            if error is not None:
                level.write_failed(error, self._clock())
            if then is not None:
                then()

        due = Due(
            until_s=self._clock() + self._deadline_s,
            late=lambda: level.write_late(self._clock()),
        )
        self._orders.send(Lane(level.name, Kind.STORE), job, erased, due=due)
