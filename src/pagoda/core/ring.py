"""A first-in, first-out queue of slots in one array: 4 bytes a slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SlotRing:
    """At most `size` slots. Full with all of them in ascending order when it is made.

    First in, first out: a freed slot is reused as late as possible, which spreads writes
    over a drive and gives a stale reader the least chance to meet a new block.
    """

    def __init__(self, size: int) -> None:
        self._ring = np.arange(size, dtype=np.int32)
        self._at = self._ring.data  # the same memory, for one slot at a time
        self._size = size
        self._first = 0
        self._count = size

    @classmethod
    def of(cls, slots: NDArray[np.intp], *, size: int) -> SlotRing:
        """A ring of `size` places that holds these."""
        ring = cls(size)
        ring._ring[: len(slots)] = slots
        ring._count = len(slots)
        return ring

    def __len__(self) -> int:
        return self._count

    def take(self, count: int) -> list[int]:
        """Up to `count` slots from the front."""
        count = min(count, self._count)
        if count <= 0:
            return []
        taken: list[int] = self._window(count).tolist()
        self._first = (self._first + count) % self._size
        self._count -= count
        return taken

    def put(self, slot: int) -> None:
        """One more at the back."""
        assert self._count < self._size, "a ring holds each slot once"
        self._at[(self._first + self._count) % self._size] = slot
        self._count += 1

    def slots(self) -> list[int]:
        """All of them, in order."""
        return [int(slot) for slot in self._window(self._count).tolist()] if self._count else []

    def _window(self, count: int) -> NDArray[np.int32]:
        end = self._first + count
        if end <= self._size:
            return self._ring[self._first : end]
        return np.concatenate([self._ring[self._first :], self._ring[: end - self._size]])
