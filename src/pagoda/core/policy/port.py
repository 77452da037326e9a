"""The policy port: which blocks to drop when a tier is full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol


class Policy(Protocol):
    """An order of eviction over the published slots of one tier.

    Slots of one prefix come in prefix order. The owner of the state tells the policy of
    every change; the policy holds no leases and reads no clock.
    """

    def insert(self, slots: Sequence[int]) -> None:
        """Newly published slots."""
        ...

    def touch(self, slots: Sequence[int]) -> None:
        """Slots that a request used."""
        ...

    def remove(self, slots: Iterable[int]) -> None:
        """Slots that are no longer published."""
        ...

    def victims(self, count: int, evictable: Callable[[int], bool]) -> list[int]:
        """Up to `count` evictable slots, the best to drop first; changes nothing."""
        ...

    def tracked(self) -> set[int]:
        """The slots that the policy orders (for invariant checks)."""
        ...
