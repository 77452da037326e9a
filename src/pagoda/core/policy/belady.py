"""Belady's optimum with bypass, over a future that is known: the bound for any policy.

The block whose next use lies furthest ahead is dropped first, and a new block whose next use
lies further ahead than that of all others is not let in. A use is a prompt with the block in
it. Of equal next uses the deeper block goes first, so that what stays is prefix-closed: a
parent is used no later than its child. (Were an answer to make a block anew that was there
before, dropping it until then would cost nothing; answers are taken not to.) References:
L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
Journal 5(2), 1966; for the bypass, S. McFarling, "Cache replacement with dynamic exclusion",
ISCA 1992.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.port import Policy, Request
from pagoda.core.policy.ranked import Ranked

_NEVER = 1 << 60  # further ahead than any request
_DEPTHS = 1 << 20  # more than a chain has blocks


class Belady(Policy):
    """Furthest next use first over slots; see `core.policy.port.Policy` for the contract.

    `prompts` are the chains of all requests in the order in which they will begin; each must
    end before the next one begins.
    """

    def __init__(self, slots: int, prompts: Iterable[Sequence[Key]] = ()) -> None:
        self._uses: dict[Key, deque[int]] = {}  # numbers of the requests to come
        for number, keys in enumerate(prompts):
            for key in keys:
                self._uses.setdefault(key, deque()).append(number)
        self._begun = 0
        self._slot_of: dict[Key, int] = {}
        self._key_of: dict[int, Key] = {}
        self._depth: dict[Key, int] = {}  # of blocks that are here; a root's child has 0
        self._rank: dict[int, int] = {}
        self._order: Ranked[int] = Ranked()

    def begin(self, request: Request) -> None:
        for key in request.keys:
            uses = self._uses.get(key)
            while uses and uses[0] <= self._begun:
                uses.popleft()
            slot = self._slot_of.get(key)
            if slot is not None:
                self._set(slot, self._ranked(key, self._depth[key]))
        self._begun += 1

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], free: int) -> Sequence[int]:
        """Those that would be left if all came in and what lies furthest ahead went. Nothing
        that is never used again is let in, though there be room."""
        ranks = [
            self._ranked(key, depth)
            for key, depth in zip(keys, self._depths(keys, parents), strict=True)
        ]
        wanted = [i for i in range(len(keys)) if ranks[i] > -_NEVER]
        wanted.sort(key=lambda i: ranks[i], reverse=True)
        rivals = [self._rank[slot] for slot in self._order.lowest(len(wanted) - free, None)]
        better = [
            i for i, rival in zip(wanted[free:], rivals, strict=False) if ranks[i] > rival
        ]  # rivals get better and these worse: no gap lies between
        return sorted(wanted[:free] + better)

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        for slot, key, depth in zip(slots, keys, self._depths(keys, parents), strict=True):
            self._slot_of[key] = slot
            self._key_of[slot] = key
            self._depth[key] = depth
            self._set(slot, self._ranked(key, depth))

    def touch(self, slots: Sequence[int]) -> None:
        return

    def remove(self, slots: Sequence[int]) -> None:
        for slot in slots:
            key = self._key_of.pop(slot)
            del self._slot_of[key], self._depth[key], self._rank[slot]
            self._order.remove(slot)

    def victims(self, count: int, leases: Leases) -> list[int]:
        return self._order.lowest(count, leases)

    def tracked(self) -> set[int]:
        return set(self._key_of)

    def _set(self, slot: int, rank: int) -> None:
        self._rank[slot] = rank
        self._order.set(slot, rank)

    def _ranked(self, key: Key, depth: int) -> int:
        """Lower for later next uses, then for greater depths."""
        uses = self._uses.get(key)
        return -((uses[0] * _DEPTHS if uses else _NEVER) + depth)

    def _depths(self, keys: Sequence[Key], parents: Sequence[Key]) -> list[int]:
        """How many blocks lie before each; a parent that is not here counts as none."""
        depth_of: dict[Key, int] = {}
        for key, parent in zip(keys, parents, strict=True):
            above = depth_of.get(parent, self._depth.get(parent))
            depth_of[key] = 0 if above is None else above + 1
        return list(depth_of.values())
