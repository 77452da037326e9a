"""ARC: two lists, one of blocks accessed once and one of those accessed again, whose shares of
the tier follow which of them would have hit.

Each list has ghosts: keys that it dropped lately. A miss that hits the ghosts of the first list
makes its target larger, one that hits those of the second makes it smaller. A ghost that comes
back enters the second list. Reference: N. Megiddo, D. S. Modha, "ARC: A self-tuning, low
overhead replacement cache", FAST 2003. The prompt's misses move the target before room is made
for all of them at once; the paper does both block by block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.accesses import AccessPolicy
from pagoda.core.policy.ghosts import Ghosts


class Arc(AccessPolicy):
    """Adaptive replacement over slots; see `core.policy.port.Policy` for the contract."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._slots = slots
        self._once: OrderedDict[int, None] = OrderedDict()  # T1, oldest first
        self._again: OrderedDict[int, None] = OrderedDict()  # T2
        self._once_gone: Ghosts[None] = Ghosts(slots)  # B1
        self._again_gone: Ghosts[None] = Ghosts(2 * slots)  # B2
        self._returning: Ghosts[None] = Ghosts(2 * slots)  # ghosts that a request has missed
        self._target = 0.0  # of the first list's size

    def victims(self, count: int, leases: Leases) -> list[int]:
        once, again = _unleased(self._once, leases), _unleased(self._again, leases)
        first, second = next(once, None), next(again, None)
        left = len(self._once)
        chosen: list[int] = []
        while len(chosen) < count and (first is not None or second is not None):
            if second is None or (first is not None and left > self._target):
                assert first is not None, "one of the lists has a slot to give"
                chosen.append(first)
                first, left = next(once, None), left - 1
            else:
                chosen.append(second)
                second = next(again, None)
        return chosen

    def _hit(self, slot: int, key: Key) -> None:
        self._once.pop(slot, None)
        self._again[slot] = None
        self._again.move_to_end(slot)

    def _miss(self, key: Key) -> None:
        once, again = len(self._once_gone), len(self._again_gone)
        if key in self._once_gone:
            self._target = min(self._slots, self._target + max(again / once, 1))
            self._once_gone.take(key)
        elif key in self._again_gone:
            self._target = max(0, self._target - max(once / again, 1))
            self._again_gone.take(key)
        else:
            return
        self._returning.put(key, None)

    def _enter(self, slot: int, key: Key) -> None:
        if key in self._returning:
            self._returning.take(key)
            self._again[slot] = None
        else:
            self._once[slot] = None
        self._trim()

    def _leave(self, slot: int, key: Key) -> None:
        if slot in self._once:
            del self._once[slot]
            self._once_gone.put(key, None)
        else:
            del self._again[slot]
            self._again_gone.put(key, None)
        self._trim()

    def _trim(self) -> None:
        """The first list and its ghosts are no more than the slots, all together twice that."""
        here = len(self._once) + len(self._again)
        while self._once_gone and len(self._once) + len(self._once_gone) > self._slots:
            self._once_gone.drop_oldest()
        while self._again_gone and (
            here + len(self._once_gone) + len(self._again_gone) > 2 * self._slots
        ):
            self._again_gone.drop_oldest()


def _unleased(slots: OrderedDict[int, None], leases: Leases) -> Iterator[int]:
    return (slot for slot in slots if leases[slot] == 0)
