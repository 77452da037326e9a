"""Slots in the order of a rank that their policy gives them, lowest first: a heap with lazy
deletion, for policies whose order is not that of last use."""

from __future__ import annotations

import heapq
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from pagoda.core.keyindex import Leases

R = TypeVar("R", bound=float | tuple[float, ...])

Entry: TypeAlias = tuple[R, int, int]  # rank, turn, slot

_SLACK = 64  # stale entries that are always tolerated


class Ranked(Generic[R]):
    """An order over some slots. Of equal ranks, the one that was set first is lower."""

    def __init__(self) -> None:
        self._heap: list[Entry[R]] = []  # stale ones among them
        # Those that were leased when they were the lowest, ascending, and their slots: what is
        # leased or pinned for long is not taken from the heap again at every asking.
        self._aside: list[Entry[R]] = []
        self._aside_slots: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._turn_of: dict[int, int] = {}  # the turn of a slot's one valid entry
        self._turn = 0

    def __len__(self) -> int:
        return len(self._turn_of)

    def __contains__(self, slot: int) -> bool:
        return slot in self._turn_of

    def set(self, slot: int, rank: R) -> None:
        """Put a slot where its rank belongs, in place of where it was."""
        self._turn += 1
        self._turn_of[slot] = self._turn
        heapq.heappush(self._heap, (rank, self._turn, slot))
        if len(self._heap) + len(self._aside) > 2 * len(self._turn_of) + _SLACK:
            self._compact()

    def remove(self, slot: int) -> None:
        """Take a slot out of the order; KeyError if it is not in it."""
        del self._turn_of[slot]

    def lowest(self, count: int, leases: Leases | None) -> list[int]:
        """Up to `count` slots that nobody leases (whoever leases them: None), lowest rank
        first."""
        heap, free = self._heap, self._free_aside(count, leases)
        met: list[Entry[R]] = []
        from_heap: list[Entry[R]] = []
        while heap and len(from_heap) < count:
            entry = heapq.heappop(heap)
            if self._stale(entry):
                continue  # gone for good
            leased = leases is not None and leases[entry[2]] > 0
            (met if leased else from_heap).append(entry)
        for entry in from_heap:
            heapq.heappush(heap, entry)
        if met:
            self._put_aside(sorted(self._aside + met))
        return [slot for _, _, slot in sorted(free + from_heap)[:count]]

    def least(self) -> R | None:
        """The lowest rank of all, leased or not; None if there is none."""
        while self._heap and self._stale(self._heap[0]):
            heapq.heappop(self._heap)
        if self._aside and self._stale(self._aside[0]):
            self._put_aside([entry for entry in self._aside if not self._stale(entry)])
        firsts = [entries[0] for entries in (self._heap, self._aside) if entries]
        return min(firsts)[0] if firsts else None

    def slots(self) -> list[int]:
        """All of them, in no order."""
        return list(self._turn_of)

    def _free_aside(self, count: int, leases: Leases | None) -> list[Entry[R]]:
        """Up to `count` of what was put aside and is free by now, lowest first."""
        if not self._aside:
            return []
        found: list[Entry[R]] = []
        stale = False
        held = np.zeros_like(self._aside_slots) if leases is None else leases[self._aside_slots]
        for place in np.flatnonzero(held == 0).tolist():
            if len(found) == count:
                break
            if self._stale(self._aside[place]):
                stale = True
            else:
                found.append(self._aside[place])
        if stale:
            self._put_aside([entry for entry in self._aside if not self._stale(entry)])
        return found

    def _put_aside(self, entries: list[Entry[R]]) -> None:
        self._aside = entries
        self._aside_slots = np.array([slot for _, _, slot in entries], dtype=np.intp)

    def _stale(self, entry: Entry[R]) -> bool:
        return self._turn_of.get(entry[2]) != entry[1]

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap + self._aside if not self._stale(entry)]
        self._put_aside([])
        heapq.heapify(self._heap)
