"""Least frequently used: the block with the fewest accesses since it entered goes first.

Of equally many, the least recently used. Counts end with a block's stay, so that what was hot
and went does not come back hot; while it stays it never cools, which is this policy's known
weakness. Reference: A. V. Aho, P. J. Denning, J. D. Ullman, "Principles of optimal page
replacement", JACM 18(1), 1971; counted within the cache ("in-cache LFU").
"""

from __future__ import annotations

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.accesses import AccessPolicy
from pagoda.core.policy.ranked import Ranked


class Lfu(AccessPolicy):
    """Fewest accesses first over slots; see `core.policy.port.Policy` for the contract."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._count: dict[int, int] = {}
        self._order: Ranked[int] = Ranked()

    def victims(self, count: int, leases: Leases) -> list[int]:
        return self._order.lowest(count, leases)

    def _hit(self, slot: int, key: Key) -> None:
        self._rank(slot, self._count[slot] + 1)

    def _miss(self, key: Key) -> None:
        return

    def _enter(self, slot: int, key: Key) -> None:
        self._rank(slot, 1)

    def _leave(self, slot: int, key: Key) -> None:
        self._order.remove(slot)
        del self._count[slot]

    def _rank(self, slot: int, count: int) -> None:
        self._count[slot] = count
        self._order.set(slot, count)
