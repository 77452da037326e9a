"""Naming victims of an order by hit density, without changing it."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.shared import density_of, heat_of

if TYPE_CHECKING:
    from pagoda.core.policy.density import DensityOrder


class Naming:
    """A walk over the leaves of an order from the lowest worth up; `chosen` is what it names.

    It ends at `count` victims, or where worth reaches `below`. `leases` None: nobody holds any.
    Leaves come by the score of their use, shared ones by their heat. A parent whose last child
    was named becomes a leaf of the walk.
    """

    def __init__(
        self, order: DensityOrder, count: int, leases: Leases | None, *, below: float = math.inf
    ) -> None:
        self.chosen: list[int] = []
        self._order = order
        self._left = count
        self._below = below
        self._leases = leases
        self._warm = 0  # how many warm leaves were passed
        self._taken: dict[Key, int] = {}  # children named, by their parent's key
        self._freed: list[tuple[float, int, int]] = []  # parents as leaves: worth, turn, slot
        self._walk()

    def _walk(self) -> None:
        for score, uses in self._order.uses.ascending():
            if score >= self._below:
                break
            self._pass_warm(heat_of(score, self._order.uses.now_s))
            for use in uses:
                for slot in reversed(use.leaves):
                    if self._freed:
                        self._pass_freed(score)
                    if self._left <= 0:
                        return
                    self._take(slot)
        self._pass_warm(math.nextafter(heat_of(self._below, self._order.uses.now_s), -math.inf))
        self._pass_freed(math.nextafter(self._below, -math.inf))

    def _pass_warm(self, limit: float) -> None:
        """Shared leaves of at most this heat; parents that are worth less come before them."""
        warm = self._order.warm
        while self._warm < len(warm) and warm[self._warm][0] <= limit and self._left > 0:
            heat, slot = warm[self._warm]
            if self._freed:
                self._pass_freed(density_of(heat, self._order.uses.now_s))
            if self._left > 0:
                self._take(slot)
                self._warm += 1

    def _pass_freed(self, limit: float) -> None:
        while self._freed and self._freed[0][0] <= limit and self._left > 0:
            self._take(heapq.heappop(self._freed)[2])

    def _take(self, slot: int) -> None:
        if self._leases is not None and self._leases[slot] != 0:
            return
        self.chosen.append(slot)
        self._left -= 1
        parent = self._order.parent[slot]
        taken = self._taken[parent] = self._taken.get(parent, 0) + 1
        above = self._order.slot_of.get(parent)
        if above is not None and taken == self._order.children[parent]:
            heapq.heappush(self._freed, (self._worth(above), len(self.chosen), above))

    def _worth(self, slot: int) -> float:
        order = self._order
        heat = order.heat.get(slot)
        if heat is None:
            return order.uses.score(order.use[slot])
        return density_of(heat, order.uses.now_s)
