"""The policy port: which blocks to drop when a tier is full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagoda.core.keyindex import Leases


class Policy(Protocol):
    """An order of eviction over the published slots of one tier of a fixed number of slots.

    Slots of one prefix come in prefix order. The owner of the state tells the policy of
    every change; the policy holds no leases and reads no clock.
    """

    def insert(self, slots: Sequence[int]) -> None:
        """Newly published slots."""
        ...

    def touch(self, slots: Sequence[int]) -> None:
        """Slots that a request used."""
        ...

    def remove(self, slots: Sequence[int]) -> None:
        """Slots that are no longer published."""
        ...

    def victims(self, count: int, leases: Leases) -> list[int]:
        """Up to `count` tracked slots, the best to drop first; changes nothing.

        `leases` counts the leases of every slot of the tier: only a slot that has none may
        be named, and each at most once. Fewer than `count` only if there are no more.
        """
        ...

    def tracked(self) -> set[int]:
        """The slots that the policy orders (for invariant checks)."""
        ...
