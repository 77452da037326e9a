"""Times to live: blocks past their time are withdrawn before the next look-up could find them.

Age counts in whole seconds from when the block was first stored. Nothing is looked for before the
first block can be due, so a store without times to live pays one comparison a poll.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pagoda.store import census
from pagoda.store.catalogue import Catalogue
from pagoda.store.store import Store


class Expiring(Protocol):
    """The engine's own blocks, as far as they age."""

    def expire(self, catalogue: Catalogue, now_s: int) -> int:
        """Unpublish blocks whose time to live is over; returns how many."""
        ...


class Expiry:
    """Owner's thread. `wall_ms` is milliseconds since the epoch."""

    def __init__(
        self, store: Store, catalogue: Catalogue, device: Expiring, *, wall_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._device = device
        self._wall_ms = wall_ms
        self._due_s: int | None = 0  # None: nothing ages

    def reset(self) -> None:
        """A time to live was set or removed."""
        self._due_s = 0

    def poll(self) -> None:
        """Drop what is past its time, if anything can be by now."""
        now_s = self._wall_ms() // 1000
        if self._due_s is None or now_s < self._due_s:
            return
        self._device.expire(self._catalogue, now_s)
        for level in self._store.levels():
            self._store.discard(level, census.expired(level, self._catalogue, now_s).tolist())
        self._due_s = self._next_s(now_s)

    def _next_s(self, now_s: int) -> int | None:
        """Blocks that are not there yet live at least the shortest time from now on."""
        lives = [ttl.seconds for ttl in self._catalogue.ttls()]
        if not lives:
            return None
        times = [census.next_expiry_s(level, self._catalogue) for level in self._store.levels()]
        known = [time for time in times if time is not None]
        return max(now_s + 1, min([*known, now_s + int(min(lives))]))
