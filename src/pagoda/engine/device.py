"""The engine's own blocks: the uppermost tier, shared between sequences by leases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pagoda.core.identity import Key, NamespaceId
from pagoda.core.policy import REGISTRY
from pagoda.core.residency import Residency
from pagoda.core.state import SlotState, TierState

TIER = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """Where a cached block comes from, for administration: its namespace, its place in its
    chain, and when it was first written or computed (seconds since the epoch)."""

    namespace: NamespaceId
    parent: Key
    depth: int
    created_s: int


def _wall_s() -> int:
    return int(time.time())


class DeviceBlocks:
    """Blocks of the runner's pool. A sequence holds one lease on each block of its table.

    A reserved block is private to the sequence that fills it. Once full it is published
    under its key, and other sequences may lease it; without a lease it stays cached until
    its place is needed.
    """

    def __init__(
        self,
        blocks: int,
        *,
        view: Callable[[int], memoryview],
        policy: str,
        wall_s: Callable[[], int] = _wall_s,
    ) -> None:
        self.residency = Residency(TierState(TIER, blocks), REGISTRY[policy](blocks))
        self.state = self.residency.state
        self.view = view
        self.wall_s = wall_s
        self.births: dict[int, Birth] = {}  # of published blocks; those of others are left over

    def take_prefix(self, keys: Sequence[Key]) -> list[int]:
        """Lease the longest cached prefix."""
        return self.residency.lease_prefix(keys)

    def reserve(self, count: int) -> list[int] | None:
        """`count` blocks to fill; None, with nothing taken or evicted, if they cannot be had."""
        if self.state.free_count() + self.state.evictable_count() < count:
            return None
        return self.residency.reserve(count)

    def publish(self, block: int, key: Key, parent: Key, birth: Birth | None = None) -> bool:
        """A block is full. False when the key is cached already: the block stays private. One
        without a birth is not seen by administration."""
        done = bool(self.residency.publish([block], [key], [parent]))
        self.births.pop(block, None)
        if done and birth is not None:
            self.births[block] = birth
        return done

    def hold(self, block: int) -> None:
        """One more lease on a published block, for a write in the background."""
        self.state.lease([block])

    def give_back(self, blocks: Iterable[int]) -> None:
        """A sequence (or a write) lets go of its blocks; private ones are free at once."""
        for block in blocks:
            if self.state.state_of(block) == SlotState.RESERVED:
                self.state.abandon([block])
            else:
                self.state.release([block])

    def forget(self) -> int:
        """Drop every cached block that nobody holds; returns how many."""
        return len(self.residency.drop_unleased())

    def distrust(self, namespace: NamespaceId) -> None:
        """Blocks of a namespace may be wrong: none of them is found any more. Who holds one keeps
        it until it is given back."""
        published = self.state.published_slots()
        self.residency.retire(
            [b for b in published if b in self.births and self.births[b].namespace == namespace]
        )

    def used(self) -> int:
        """Blocks that are leased or being filled."""
        return self.state.slots - self.state.free_count() - self.cached()

    def cached(self) -> int:
        """Published blocks that nobody holds: reusable, and evictable."""
        return self.state.evictable_count()
