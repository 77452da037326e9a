"""A run of blocks on its way into a level: what the I/O thread does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pagoda.core.errors import TierError
from pagoda.core.identity import Key
from pagoda.core.outcome import Hit
from pagoda.machine.buffers import aligned_buffer
from pagoda.seal.header import Seal
from pagoda.store.level import Level
from pagoda.store.queue import Pending
from pagoda.tiers.sealed import Order

_PAGE_BYTES = 4096


@dataclass(slots=True, eq=False)
class Write:
    """Items, and the reserved slot and the seal that each gets in `level`, which belongs to the
    rank at position `rank`. `loads` says where the bytes of items lie that a level above
    holds; `staging` is where they are read to."""

    rank: int
    level: Level
    items: list[Pending]
    slots: list[int]
    seals: list[Seal]
    epoch: int
    loads: list[tuple[Level, list[int], list[Order]]]
    staging: memoryview | None
    error: TierError | None = None
    lost: set[int] = field(default_factory=set)  # items whose source could not be verified
    seconds: float = 0.0

    @property
    def kept(self) -> list[int]:
        """Positions of the items whose bytes were at hand."""
        return [i for i in range(len(self.items)) if i not in self.lost]

    @property
    def size_bytes(self) -> int:
        """What it takes of a write budget: whole slots."""
        return len(self.slots) * self.level.sealed.geometry.slot_bytes

    def carry_out(self, clock: Callable[[], float]) -> Write:
        """In an I/O thread: read back what lies above, then write it all."""
        started_s = clock()
        payloads = self._payloads()
        kept = self.kept
        try:
            # Nothing will be written over the headers of blocks that were evicted for these.
            self.level.sealed.free([self.slots[i] for i in sorted(self.lost)])
            self.level.sealed.store(
                [self.slots[i] for i in kept],
                [self.seals[i] for i in kept],
                [payloads[i] for i in kept],
            )
        except TierError as error:
            self.error = error
        self.seconds = clock() - started_s
        return self

    def _payloads(self) -> list[memoryview]:
        payloads = [item.block.payload for item in self.items]
        if self.staging is None:
            return payloads
        staged = list(_cut(self.staging, [len(payload) for payload in payloads]))
        for level, positions, orders in self.loads:
            outcomes = level.sealed.load(orders, [staged[i] for i in positions])
            for position, outcome in zip(positions, outcomes, strict=True):
                payloads[position] = staged[position]
                if not isinstance(outcome, Hit):
                    self.lost.add(position)
        return payloads


def loads_of(items: Sequence[Pending]) -> list[tuple[Level, list[int], list[Order]]]:
    """Read orders for the items whose bytes a level above holds, by level: with the positions
    of the items."""
    found: dict[Level, tuple[list[int], list[int], list[Key]]] = {}
    for position, item in enumerate(items):
        if item.source is not None:
            positions, slots, keys = found.setdefault(item.source.level, ([], [], []))
            positions.append(position)
            slots.append(item.source.slot)
            keys.append(item.block.key)
    return [
        (level, where, level.orders(slots, keys)) for level, (where, slots, keys) in found.items()
    ]


def staging_of(level: Level) -> memoryview:
    """Memory for one run of a level."""
    return memoryview(aligned_buffer(level.run_blocks * level.sealed.geometry.slot_bytes))


def _cut(staging: memoryview, sizes: Sequence[int]) -> Iterator[memoryview]:
    """Consecutive views of `staging`, each starting on a page."""
    start = 0
    for size in sizes:
        yield staging[start : start + size]
        start += -(-size // _PAGE_BYTES) * _PAGE_BYTES
