"""Slots in the order of a rank that their policy gives them, lowest first: a heap with lazy
deletion, for policies whose order is not that of last use."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from pagoda.core.keyindex import Leases

R = TypeVar("R", bound=float | tuple[float, ...])

_SLACK = 64  # stale entries that are always tolerated


class Ranked(Generic[R]):
    """An order over some slots. Of equal ranks, the one that was set first is lower."""

    def __init__(self) -> None:
        self._heap: list[tuple[R, int, int]] = []  # rank, turn, slot; stale ones among them
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
        if len(self._heap) > 2 * len(self._turn_of) + _SLACK:
            self._compact()

    def remove(self, slot: int) -> None:
        """Take a slot out of the order; KeyError if it is not in it."""
        del self._turn_of[slot]

    def lowest(self, count: int, leases: Leases | None) -> list[int]:
        """Up to `count` slots that nobody leases (whoever leases them: None), lowest rank
        first."""
        heap, turn_of = self._heap, self._turn_of
        seen: list[tuple[R, int, int]] = []
        chosen: list[int] = []
        while heap and len(chosen) < count:
            entry = heapq.heappop(heap)
            if turn_of.get(entry[2]) != entry[1]:
                continue  # stale: gone for good
            seen.append(entry)
            if leases is None or leases[entry[2]] == 0:
                chosen.append(entry[2])
        for entry in seen:
            heapq.heappush(heap, entry)
        return chosen

    def least(self) -> R | None:
        """The lowest rank of all, leased or not; None if there is none."""
        heap, turn_of = self._heap, self._turn_of
        while heap and turn_of.get(heap[0][2]) != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def slots(self) -> list[int]:
        """All of them, in no order."""
        return list(self._turn_of)

    def _compact(self) -> None:
        turn_of = self._turn_of
        self._heap = [entry for entry in self._heap if turn_of.get(entry[2]) == entry[1]]
        heapq.heapify(self._heap)
