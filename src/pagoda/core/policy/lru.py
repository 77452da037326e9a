"""Least recently used, tail first.

The blocks of a prefix are touched from its tail to its head, so that a tail is dropped
before the head that it is useless without. This is the base line that vLLM's and SGLang's
prefix caches use. Reference: P. J. Denning, "The working set model for program behavior",
CACM 11(5), 1968, and the reverse-order free of vLLM's block pool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence


class Lru:
    """Least recently used over slots; see `core.policy.port.Policy` for the contract."""

    def __init__(self) -> None:
        self._order: OrderedDict[int, None] = OrderedDict()  # oldest first

    def insert(self, slots: Sequence[int]) -> None:
        self.touch(slots)

    def touch(self, slots: Sequence[int]) -> None:
        for slot in reversed(slots):
            self._order[slot] = None
            self._order.move_to_end(slot)

    def remove(self, slots: Iterable[int]) -> None:
        for slot in slots:
            del self._order[slot]

    def victims(self, count: int, evictable: Callable[[int], bool]) -> list[int]:
        chosen: list[int] = []
        for slot in self._order:
            if len(chosen) == count:
                break
            if evictable(slot):
                chosen.append(slot)
        return chosen

    def tracked(self) -> set[int]:
        return set(self._order)
