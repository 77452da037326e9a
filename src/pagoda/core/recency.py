"""Slots in the order of their last use: what most eviction policies are built from.

Compiled where it can be (8 bytes a slot), an ordered dictionary otherwise; tests hold the two
equal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol, cast

from pagoda.core import native
from pagoda.core.keyindex import Leases


class Recency(Protocol):
    """An order over some of the slots in [0, slots)."""

    def __len__(self) -> int: ...

    def touch(self, slots: Sequence[int]) -> None:
        """Used now, the last of them first: the tail of a prefix is older than its head."""
        ...

    def remove(self, slots: Sequence[int]) -> None:
        """Take slots out of the order; KeyError if one is not in it."""
        ...

    def oldest(self, count: int, leases: Leases) -> list[int]:
        """Up to `count` slots that nobody leases, least recently used first."""
        ...

    def slots(self) -> list[int]:
        """All of them, oldest first."""
        ...


class DictRecency:
    """The reference, and what is used where nothing could be compiled."""

    def __init__(self) -> None:
        self._order: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def touch(self, slots: Sequence[int]) -> None:
        for slot in reversed(slots):
            self._order[slot] = None
            self._order.move_to_end(slot)

    def remove(self, slots: Sequence[int]) -> None:
        for slot in slots:
            del self._order[slot]

    def oldest(self, count: int, leases: Leases) -> list[int]:
        chosen: list[int] = []
        for slot in self._order:
            if len(chosen) >= count:
                break
            if leases[slot] == 0:
                chosen.append(slot)
        return chosen

    def slots(self) -> list[int]:
        return list(self._order)


def make_recency(slots: int) -> Recency:
    """The fastest order there is here."""
    if native.TABLES is None:
        return DictRecency()
    return cast(Recency, native.TABLES.Recency(slots))
