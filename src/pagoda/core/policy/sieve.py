"""SIEVE: one queue in order of entry, and a hand that goes round it from the oldest block on.

A hit marks a block where it lies. The hand takes the mark off what it passes and drops the
first block without one; it stays there for the next time, so that new blocks are sifted soon
and survivors lie behind it in peace. Reference: Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson,
K. V. Rashmi, "SIEVE is simpler than LRU", NSDI 2024. The hand passes leased blocks by.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.accesses import AccessPolicy


@dataclass(slots=True)
class _Plan:
    """What making room does: the victims, all that the hand passes up to the last of them and
    whether it stays, and what it takes the mark off."""

    victims: dict[int, None] = field(default_factory=dict)
    way: list[tuple[int, bool]] = field(default_factory=list)
    bared: set[int] = field(default_factory=set)


class Sieve(AccessPolicy):
    """A queue with a hand over slots; see `core.policy.port.Policy` for the contract.

    The queue is kept as two: what the hand has yet to pass before it turns, and what it has
    passed. New blocks come at the end of the first.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._ahead: OrderedDict[int, None] = OrderedDict()
        self._passed: OrderedDict[int, None] = OrderedDict()
        self._marked: set[int] = set()
        self._plan: _Plan | None = None  # valid until anything changes

    def victims(self, count: int, leases: Leases) -> list[int]:
        plan, way = _Plan(), list[tuple[int, bool]]()
        circle = (self._ahead, self._passed)
        for slot in chain(*circle, *circle):
            if len(plan.victims) >= count:
                break
            if slot in plan.victims:
                continue
            stays = bool(leases[slot])
            if not stays and slot in self._marked and slot not in plan.bared:
                plan.bared.add(slot)
                stays = True
            way.append((slot, stays))
            if not stays:
                plan.victims[slot] = None
                plan.way += way
                way.clear()
        self._plan = plan
        return list(plan.victims)

    def remove(self, slots: Sequence[int]) -> None:
        plan, self._plan = self._plan, None
        if plan is not None and list(plan.victims) == list(slots):
            self._marked -= plan.bared
            for slot, stays in plan.way:
                del self._ahead[slot]
                if stays:
                    self._passed[slot] = None
                self._turn()
        super().remove(slots)

    def _hit(self, slot: int, key: Key) -> None:
        self._plan = None
        self._marked.add(slot)

    def _miss(self, key: Key) -> None:
        return

    def _enter(self, slot: int, key: Key) -> None:
        self._plan = None
        self._ahead[slot] = None

    def _leave(self, slot: int, key: Key) -> None:
        self._marked.discard(slot)
        self._ahead.pop(slot, None)
        self._passed.pop(slot, None)
        self._turn()

    def _turn(self) -> None:
        """At the queue's end, the hand goes on from its beginning."""
        if not self._ahead:
            self._ahead, self._passed = self._passed, self._ahead
