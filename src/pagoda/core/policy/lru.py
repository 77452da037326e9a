"""Least recently used, tail first.

The blocks of a prefix are touched from its tail to its head, so that a tail is dropped
before the head that it is useless without. This is the base line that vLLM's and SGLang's
prefix caches use. Reference: P. J. Denning, "The working set model for program behavior",
CACM 11(5), 1968, and the reverse-order free of vLLM's block pool.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.port import Policy
from pagoda.core.recency import make_recency


class Lru(Policy):
    """Least recently used over slots; see `core.policy.port.Policy` for the contract."""

    def __init__(self, slots: int) -> None:
        self._order = make_recency(slots)

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        self._order.touch(slots)

    def touch(self, slots: Sequence[int]) -> None:
        self._order.touch(slots)

    def remove(self, slots: Sequence[int]) -> None:
        self._order.remove(slots)

    def victims(self, count: int, leases: Leases) -> list[int]:
        return self._order.oldest(count, leases)

    def tracked(self) -> set[int]:
        return set(self._order.slots())
