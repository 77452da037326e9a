"""A run of blocks on its way into a shared store: what the I/O threads do.

Three steps, an order each, because whoever hangs in one must not hold what only another needs:
`ask` and `send` call the shared store and touch no local tier, `read_back` is the reverse.
"""

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
    cancelled: bool = False  # goes no further than the order under way
    there: set[int] = field(default_factory=set)  # the store had them
    ready: dict[int, memoryview] = field(default_factory=dict)  # bytes to send, by position
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

    @property
    def unsure(self) -> list[int]:
        """Positions to ask for before anything is sent."""
        return [i for i in range(len(self.items)) if i not in self.sure]

    @property
    def sources(self) -> tuple[str, ...]:
        """The tiers that hold bytes of what is to be sent."""
        return tuple(
            level.name
            for level, positions, _ in self.loads
            if any(i not in self.there for i in positions)
        )

    def ask(self, sealed: SealedShared) -> SharedRun:
        """Find out what is there."""
        names, unsure = self.names, self.unsure
        try:
            found = sealed.has([names[i] for i in unsure])
        except TierError as error:
            self.error = error
        else:
            self.there = {i for i, there in zip(unsure, found, strict=True) if there}
        return self

    def take_callers(self) -> None:
        """Have the bytes that lie with the caller ready, as far as they are to be sent."""
        for i, item in enumerate(self.items):
            if item.source is None and i not in self.there:
                self.ready[i] = item.block.payload

    def read_back(self) -> SharedRun:
        """Have the bytes ready that lie in slots; those that cannot be had are left out."""
        for level, positions, orders in self.loads:
            wanted = [at for at, i in enumerate(positions) if i not in self.there]
            if not wanted:
                continue
            views = [self.staged[positions[at]] for at in wanted]
            outcomes = level.sealed.load([orders[at] for at in wanted], views)
            for at, view, outcome in zip(wanted, views, outcomes, strict=True):
                if isinstance(outcome, Hit):
                    self.ready[positions[at]] = view
        return self

    def send(self, sealed: SealedShared, clock: Callable[[], float]) -> SharedRun:
        """Seal and send what is ready."""
        started_s = clock()
        try:
            sealed.store([self.seals[i] for i in self.ready], list(self.ready.values()))
        except TierError as error:
            self.error = error
        else:
            self.stored = set(self.ready)
        self.seconds = clock() - started_s
        return self
