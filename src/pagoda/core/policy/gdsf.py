"""Greedy dual, size, frequency: a block's priority is the cache's age when it was last used,
plus its accesses times what a miss costs for each byte kept; the lowest goes first.

The age is the priority of what was dropped last, so that old counts fade. All blocks of a tier
have one size, and one cost here: to compute a block again costs nearly the same at any depth
until attention outweighs the weights' part, and a cost that rose with depth would keep tails
above the heads that they are useless without. Priority is then age + accesses. Reference:
L. Cherkasova, "Improving WWW proxies performance with greedy-dual-size-frequency caching
policy", HP Labs HPL-98-69, 1998.
"""

from __future__ import annotations

from pagoda.core.identity import Key
from pagoda.core.policy.lfu import Lfu


class Gdsf(Lfu):
    """Lowest priority first over slots; see `core.policy.port.Policy` for the contract."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._priority: dict[int, int] = {}
        self._age = 0

    def _leave(self, slot: int, key: Key) -> None:
        super()._leave(slot, key)
        priority = self._priority.pop(slot)
        below = self._order.least()
        # What goes though others rank below it is no victim of age: it was bad, or they are
        # leased. The age follows the lowest of all.
        self._age = max(self._age, priority if below is None else min(priority, below))

    def _rank(self, slot: int, count: int) -> None:
        self._count[slot] = count
        self._priority[slot] = self._age + count
        self._order.set(slot, self._priority[slot])
