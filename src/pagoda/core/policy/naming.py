"""Naming victims of an order by hit density, without changing it."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.shared import heat_of
from pagoda.core.policy.uses import Place, Use

if TYPE_CHECKING:
    from pagoda.core.policy.density import DensityOrder

# Where a leaf stands, by heat: a shared one, which comes first among equals, or a use's.
Standing = tuple[float, bool, Place]


def _shared(heat: float, slot: int) -> Standing:
    """Where a shared leaf stands: of equally hot ones, by its slot."""
    return (heat, False, (0.0, 0, 0, slot))


class Naming:
    """A walk over the leaves of an order from the lowest worth up; `chosen` is what it names.

    It ends at `count` victims, or where worth reaches `below`. `leases` None: nobody holds any.
    Leaves come by the score of their use, shared ones by their heat. A parent whose last child
    was named becomes a leaf of the walk, and comes where it will stand once that child is gone:
    so the first victims of many are those that would be named for few, and the others come next.
    """

    def __init__(
        self, order: DensityOrder, count: int, leases: Leases | None, *, below: float = math.inf
    ) -> None:
        self.chosen: list[int] = []
        self._order = order
        self._left = count
        self._leases = None if leases is None else leases.data  # of one slot faster than an array
        self._warm = 0  # how many warm leaves were passed
        self._taken: dict[Key, int] = {}  # children named, by their parent's key
        # Parents as leaves: where they stand, the latest of equal ones first, and the slot.
        self._freed: list[tuple[Standing, int, int]] = []
        self._walk(below)

    def _walk(self, below: float) -> None:
        uses = self._order.uses
        for score, bucket in uses.ascending():
            if score >= below:
                break
            heat = heat_of(score, uses.now_s)
            self._pass_warm(heat)
            for _, use in bucket:
                for slot in reversed(use.leaves):
                    if self._freed:
                        self._pass_freed((heat, True, uses.place(use)))
                    if self._left <= 0:
                        return
                    self._take(slot)
        limit = math.nextafter(heat_of(below, uses.now_s), -math.inf)
        self._pass_warm(limit)
        self._pass_freed((limit, True, (math.inf, 0, 0, 0)))

    def _pass_warm(self, limit: float) -> None:
        """Shared leaves of at most this heat, and the parents that come before them."""
        warm = self._order.warm
        while self._warm < len(warm) and warm[self._warm][0] <= limit and self._left > 0:
            heat, slot = warm[self._warm]
            if self._freed:
                self._pass_freed(_shared(heat, slot))
            if self._left > 0:
                self._take(slot)
                self._warm += 1

    def _pass_freed(self, limit: Standing) -> None:
        while self._freed and self._freed[0][0] <= limit and self._left > 0:
            self._take(heapq.heappop(self._freed)[2])

    def _take(self, slot: int) -> None:
        """Name a leaf, then those blocks above it that stand where it stood."""
        order, heat = self._order, self._order.heat
        use = order.use[slot]
        while self._left > 0 and (self._leases is None or self._leases[slot] == 0):
            self.chosen.append(slot)
            self._left -= 1
            parent = order.parent[slot]
            taken = self._taken[parent] = self._taken.get(parent, 0) + 1
            if taken != order.children.get(parent):
                return
            above = order.slot_of.get(parent)
            if above is None:
                return
            if order.use[above] is not use or slot in heat or above in heat:
                standing = self._standing(above, order.use[above])
                heapq.heappush(self._freed, (standing, -len(self.chosen), above))
                return
            slot = above

    def _standing(self, slot: int, use: Use) -> Standing:
        heat = self._order.heat.get(slot)
        if heat is not None:
            return _shared(heat, slot)
        uses = self._order.uses
        return (heat_of(uses.score(use), uses.now_s), True, uses.place(use))
