"""LRU-2: the block whose last but one access lies furthest back is dropped first.

One access says little; two say how far apart a block's uses lie. Blocks with a single known
access go before all others, the least recently used first. The last two accesses of blocks that
are gone are remembered for so many of them. Reference: E. O'Neil, P. O'Neil, G. Weikum, "The
LRU-K page replacement algorithm for database disk buffering", SIGMOD 1993; no correlated
reference period, since accesses count once a request.
"""

from __future__ import annotations

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.accesses import AccessPolicy
from pagoda.core.policy.ghosts import Ghosts
from pagoda.core.policy.ranked import Ranked

_REMEMBERED = 32_768  # keys of blocks that are gone, beside one for each slot of the tier
_NEVER = 0


class Lru2(AccessPolicy):
    """Least recently used but one over slots; see `core.policy.port.Policy` for the contract."""

    def __init__(self, slots: int, *, remembered: int | None = None) -> None:
        super().__init__(slots)
        self._gone: Ghosts[tuple[int, int]] = Ghosts(
            _REMEMBERED + slots if remembered is None else remembered
        )
        self._last: dict[int, tuple[int, int]] = {}  # a slot's last access and the one before
        self._order: Ranked[int] = Ranked()  # by the one before; ties by the last
        self._accesses = 0

    def victims(self, count: int, leases: Leases) -> list[int]:
        return self._order.lowest(count, leases)

    def _hit(self, slot: int, key: Key) -> None:
        self._rank(slot, self._after(self._last[slot]))

    def _miss(self, key: Key) -> None:
        self._gone.put(key, self._after(self._gone.get(key)))

    def _enter(self, slot: int, key: Key) -> None:
        self._rank(slot, self._gone.take(key) or self._after(None))

    def _leave(self, slot: int, key: Key) -> None:
        self._order.remove(slot)
        self._gone.put(key, self._last.pop(slot))

    def _rank(self, slot: int, last: tuple[int, int]) -> None:
        self._last[slot] = last
        self._order.set(slot, last[1])

    def _after(self, last: tuple[int, int] | None) -> tuple[int, int]:
        self._accesses += 1
        return self._accesses, last[0] if last else _NEVER
