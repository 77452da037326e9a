"""What a node hears of its store, and what must never be heard."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

from pagoda.core.events import Barred, Event, Evicted, Quarantined, Reason, Skipped, Stored
from pagoda.core.identity import Key
from pagoda.lab.sim.drive import SLOT_BYTES
from pagoda.lab.sim.failure import Check, ensure
from pagoda.lab.sim.requests import Requests
from pagoda.store.level import Level


class Watched(Protocol):
    """The node that is watched."""

    well: bool
    levels: Mapping[str, Level]
    requests: Requests

    def suspects(self, tier: str) -> AbstractSet[Key]:
        """Keys of blocks that a fault may have damaged in a tier."""
        ...


class Watch:
    """Counts events, and holds evictions and refusals against the tiers' states."""

    def __init__(self, node: Watched) -> None:
        self.told: dict[str, int] = {}  # by kind
        self.skipped: dict[Reason, int] = {}
        self._node = node
        self._overruled: dict[str, int] = {}  # by tier: pinned blocks that went all the same

    def refused(self) -> tuple[int, int]:
        """Blocks that were skipped, and how often some were declined."""
        return sum(self.skipped.values()), self.told.get("Declined", 0)

    def observe(self, event: Event) -> None:
        """The store's observer."""
        kind = type(event).__name__
        self.told[kind] = self.told.get(kind, 0) + 1
        match event:
            case Evicted(tier=tier):
                free = self._node.levels[tier].state.free_count()
                ensure(free == 0, Check.ROOM, f"{tier}: blocks were evicted, and {free} slots free")
                self._check_pinned(tier)
            case Barred(namespace=namespace):
                self._node.requests.sampling.barred(namespace)
            case Skipped(tier=tier, blocks=blocks, reason=reason):
                self.skipped[reason] = self.skipped.get(reason, 0) + blocks
                if reason is Reason.FULL and self._node.well:
                    self._check_full(tier)
            case Quarantined(tier=tier, reason=Reason.CORRUPT | Reason.MISPLACED as reason):
                damaged = bool(self._node.suspects(tier))
                why = f"{tier}: a slot was quarantined as {reason}, but nothing was damaged there"
                ensure(damaged, Check.REASON, why)
            case Stored(tier=tier):
                self._node.requests.bad.published(tier)

    def _check_pinned(self, tier: str) -> None:
        """Under a policy that names any block, pinned ones go last."""
        residency = self._node.levels[tier].residency
        before, self._overruled[tier] = self._overruled.get(tier, 0), residency.overruled
        if residency.overruled == before or residency.policy != "lru":
            return
        state, pinned = residency.state, residency.pinned.mask
        assert pinned is not None, "a pinned block went"
        left = [s for s in state.published_slots() if not state.leased(s) and not pinned[s]]
        ensure(not left, Check.PINNED, f"{tier}: a pinned block went beside {len(left)} others")

    def _check_full(self, rank: str) -> None:
        """A member that may still be written to has nothing left to evict, either."""
        for name, level in self._node.levels.items():
            worn = level.wear.budget.usable_bytes < SLOT_BYTES
            if not name.startswith(rank) or worn or level.trust.lost:
                continue
            evictable = level.state.evictable_count()
            why = f"{name}: a block was refused for want of room beside {evictable} evictable ones"
            ensure(evictable == 0, Check.ROOM, why)
