"""A run of blocks on its way into a shared store: what the I/O thread does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagoda.core.errors import TierError
from pagoda.core.identity import NamespaceId
from pagoda.core.outcome import Hit
from pagoda.seal.header import Seal
from pagoda.store.level import Level
from pagoda.store.queue import Pending
from pagoda.tiers.remote.sealed import Name, SealedShared
from pagoda.tiers.sealed import Order

Loads = Sequence[tuple[Level, list[int], list[Order]]]


@dataclass(slots=True, eq=False)
class SharedRun:
    """Items and their seals. `sure` are positions to write without asking, `loads` says where
    the bytes of items lie that a level holds, `staged` has a buffer for each item then;
    `cleared` are namespaces that were cleared meanwhile."""

    items: list[Pending]
    seals: list[Seal]
    sure: frozenset[int]
    loads: Loads
    staged: list[memoryview]
    cleared: set[NamespaceId] = field(default_factory=set)
    there: set[int] = field(default_factory=set)  # the store had them
    stored: set[int] = field(default_factory=set)
    error: TierError | None = None
    seconds: float = 0.0

    @property
    def names(self) -> list[Name]:
        """What the blocks are called in the store."""
        return [Name(item.block.namespace, item.block.key) for item in self.items]

    def size_bytes(self, positions: set[int]) -> int:
        """Bytes of these items' payloads."""
        return sum(len(self.items[i].block.payload) for i in positions)

    def carry_out(self, sealed: SealedShared, clock: Callable[[], float]) -> SharedRun:
        """Ask what is there, read back what lies in slots, seal and send."""
        started_s = clock()
        try:
            self._ask(sealed)
            payloads = self._payloads()
            if payloads:
                sealed.store([self.seals[i] for i in payloads], list(payloads.values()))
            self.stored = set(payloads)
        except TierError as error:
            self.error = error
        self.seconds = clock() - started_s
        return self

    def _ask(self, sealed: SealedShared) -> None:
        unsure = [i for i in range(len(self.items)) if i not in self.sure]
        if unsure:
            names = self.names
            found = sealed.has([names[i] for i in unsure])
            self.there = {i for i, there in zip(unsure, found, strict=True) if there}

    def _payloads(self) -> dict[int, memoryview]:
        """The bytes of the items to send, by position; without those that cannot be had."""
        ready = {
            i: item.block.payload
            for i, item in enumerate(self.items)
            if item.source is None and i not in self.there
        }
        for level, positions, orders in self.loads:
            wanted = [at for at, i in enumerate(positions) if i not in self.there]
            views = [self.staged[positions[at]] for at in wanted]
            outcomes = level.sealed.load([orders[at] for at in wanted], views)
            for at, view, outcome in zip(wanted, views, outcomes, strict=True):
                if isinstance(outcome, Hit):
                    ready[positions[at]] = view
        return ready
