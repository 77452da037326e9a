"""The engine's own blocks: the uppermost tier, shared between sequences by leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pagoda.core.identity import Key
from pagoda.core.policy import REGISTRY
from pagoda.core.residency import Residency
from pagoda.core.state import SlotState, TierState

TIER = "device"


class DeviceBlocks:
    """Blocks of the runner's pool. A sequence holds one lease on each block of its table.

    A reserved block is private to the sequence that fills it. Once full it is published
    under its key, and other sequences may lease it; without a lease it stays cached until
    its place is needed.
    """

    def __init__(self, blocks: int, *, view: Callable[[int], memoryview], policy: str) -> None:
        self.residency = Residency(TierState(TIER, blocks), REGISTRY[policy](blocks))
        self.state = self.residency.state
        self.view = view

    def take_prefix(self, keys: Sequence[Key]) -> list[int]:
        """Lease the longest cached prefix."""
        return self.residency.lease_prefix(keys)

    def reserve(self, count: int) -> list[int] | None:
        """`count` blocks to fill; None, with nothing taken or evicted, if they cannot be had."""
        if self.state.free_count() + self.state.evictable_count() < count:
            return None
        return self.residency.reserve(count)

    def publish(self, block: int, key: Key) -> bool:
        """A block is full. False when the key is cached already: the block stays private."""
        return bool(self.residency.publish([block], [key]))

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

    def used(self) -> int:
        """Blocks that are leased or being filled."""
        return self.state.slots - self.state.free_count() - self.cached()

    def cached(self) -> int:
        """Published blocks that nobody holds: reusable, and evictable."""
        return self.state.evictable_count()
