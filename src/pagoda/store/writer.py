"""Storing in the background: from device blocks to the first level, and from level to level.

Each level has a queue. A write takes blocks off it in runs of about 4 MiB; blocks that the
level already holds are skipped. What a level has committed is queued for the next one and
read back through its seal into staging memory, so a bad byte does not travel down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pagoda.core.errors import TierError
from pagoda.core.events import Reason, Skipped, Stored
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.outcome import Hit
from pagoda.machine.buffers import aligned_buffer
from pagoda.seal.header import Seal
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.level import Level
from pagoda.store.orders import Orders
from pagoda.tiers.sealed import Order, reason_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block to store: its name, its place in its chain, and its bytes in caller's memory."""

    namespace: NamespaceId
    key: Key
    parent: Key
    depth: int
    tokens: int
    payload: memoryview

    def seal(self, *, generation: int, created_ms: int) -> Seal:
        """The seal to write, its digest still to be filled in."""
        return Seal(
            namespace=self.namespace,
            key=self.key,
            parent=self.parent,
            depth=self.depth,
            tokens=self.tokens,
            generation=generation,
            raw_bytes=len(self.payload),
            stored_bytes=len(self.payload),
            payload_digest=bytes(16),
            created_ms=created_ms,
        )


@dataclass(slots=True)
class Pending:
    """A block in a level's queue. `source` is the slot one level up that holds it (leased);
    None means that its bytes still lie with the caller, who is told by `release`."""

    block: Block
    release: Callable[[], object]
    until_s: float
    source: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much may wait in each level's queue, and for how long."""

    size_bytes: int
    wait_s: float


@dataclass(slots=True)
class Write:
    """A run of blocks on its way into a level."""

    level: int
    items: list[Pending]
    slots: list[int]
    staging: memoryview | None
    epoch: int
    error: TierError | None = None
    lost: list[bool] = field(default_factory=list)  # the source could not be verified
    seconds: float = 0.0


class Writer:
    """The write half of a store. All methods run in the owner's thread, jobs in I/O threads."""

    def __init__(
        self,
        levels: Sequence[Level],
        *,
        runtime: Runtime,
        orders: Orders,
        withdraw: Callable[[Level, list[int]], None],
        limits: QueueLimits,
    ) -> None:
        self._levels = levels
        self._orders = orders
        self._withdraw = withdraw
        self._epoch = 0  # raised by `cancel`
        self._clock = runtime.clock
        self._wall_ms = runtime.wall_ms
        self._observer = runtime.observer
        self._limits = limits
        self._queues: list[deque[Pending]] = [deque() for _ in levels]
        self._queued: list[set[Key]] = [set() for _ in levels]
        self._flying = [0 for _ in levels]
        self._staging = [_staging(level) if i else None for i, level in enumerate(levels)]

    @property
    def idle(self) -> bool:
        return not any(self._queues) and not any(self._flying)

    def add(self, blocks: Sequence[Block], release: Callable[[Block], object]) -> None:
        """Queue blocks for the first level; `release` is called once their bytes are free."""
        for block in blocks:
            self._enqueue(0, Pending(block, partial(release, block), self._due_s()))
        self.pump()

    def pump(self) -> None:
        """Start what can be started: one run at a time for each level."""
        for index, level in enumerate(self._levels):
            while self._queues[index] and not self._flying[index]:
                if not level.writable(self._clock()):
                    self._skip_all(index, Reason.READ_ONLY)
                else:
                    self._start(index)

    def _landed(self, write: Write) -> None:
        """A run ended: publish it, hand it on to the next level, or give it up."""
        self._flying[write.level] -= 1
        level = self._levels[write.level]
        if write.error is not None:
            reason = reason_of(write.error)
            level.write_failed(write.error, reason, self._clock())
            level.state.abandon(write.slots)
            for item in write.items:
                self._give_up(write.level, item, reason)
        else:
            level.write_succeeded()
            self._publish(level, write)
        self.pump()

    def expire(self) -> None:
        """Drop what has waited too long, as it does above a stuck drive."""
        now_s = self._clock()
        for index, queue in enumerate(self._queues):
            while queue and queue[0].until_s <= now_s:
                self._give_up(index, queue.popleft(), Reason.TIMEOUT)

    def cancel(self) -> None:
        """Forget what is queued; what is in flight will not be published."""
        self._epoch += 1
        for index in range(len(self._levels)):
            self._skip_all(index, Reason.CLOSED)

    def _enqueue(self, index: int, item: Pending) -> None:
        level = self._levels[index]
        key = item.block.key
        if level.state.slot_of(key) is not None or key in self._queued[index]:
            item.release()
        elif len(self._queues[index]) * len(item.block.payload) >= self._limits.size_bytes:
            self._observer(Skipped(tier=level.name, blocks=1, reason=Reason.BUSY))
            item.release()
        else:
            self._queued[index].add(key)
            self._queues[index].append(item)

    def _start(self, index: int) -> None:
        level = self._levels[index]
        run = min(level.run_blocks, len(self._queues[index]))
        slots = level.reserve(run)
        items = [self._queues[index].popleft() for _ in range(run)]
        for item in items[len(slots) :]:
            self._give_up(index, item, Reason.FULL)
        items = items[: len(slots)]
        if not items:
            return
        seals = [
            item.block.seal(generation=level.state.generation(slot), created_ms=self._wall_ms())
            for item, slot in zip(items, slots, strict=True)
        ]
        write = Write(index, items, slots, self._staging[index], self._epoch)
        orders = self._source_orders(index, items)
        self._flying[index] += 1
        self._orders.send(
            Lane(level.name, Kind.STORE),
            lambda: self._carry_out(write, seals, orders),
            self._landed,
        )

    def _due_s(self) -> float:
        return self._clock() + self._limits.wait_s

    def _source_orders(self, index: int, items: Sequence[Pending]) -> list[Order]:
        if index == 0:
            return []
        above = self._levels[index - 1]
        slots = [item.source for item in items if item.source is not None]
        return above.orders(slots, [item.block.key for item in items])

    def _carry_out(self, write: Write, seals: list[Seal], orders: list[Order]) -> Write:
        """In an I/O thread: read the run back from above if it lies there, then write it."""
        started_s = self._clock()
        payloads = [item.block.payload for item in write.items]
        slots = write.slots
        if write.staging is not None:
            staged = _cut(write.staging, [seal.stored_bytes for seal in seals])
            above = self._levels[write.level - 1].sealed
            outcomes = above.load(orders, staged)
            write.lost = [not isinstance(outcome, Hit) for outcome in outcomes]
            keep = [i for i, lost in enumerate(write.lost) if not lost]
            slots = [slots[i] for i in keep]
            seals = [seals[i] for i in keep]
            payloads = [staged[i] for i in keep]
        try:
            self._levels[write.level].sealed.store(slots, seals, payloads)
        except TierError as error:
            write.error = error
        write.seconds = self._clock() - started_s
        return write

    def _publish(self, level: Level, write: Write) -> None:
        kept = [i for i in range(len(write.items)) if not (write.lost and write.lost[i])]
        lost = [write.slots[i] for i in range(len(write.items)) if i not in set(kept)]
        slots = [write.slots[i] for i in kept]
        keys = [write.items[i].block.key for i in kept]
        published = level.residency.publish(slots, keys)
        self._observer(
            Stored(
                tier=level.name,
                blocks=len(published),
                size_bytes=sum(len(write.items[i].block.payload) for i in kept),
                seconds=write.seconds,
            )
        )
        level.state.abandon(lost + [slot for slot in slots if slot not in set(published)])
        if write.epoch != self._epoch:
            self._withdraw(level, published)
        self._hand_on(write, set(published))

    def _hand_on(self, write: Write, published: set[int]) -> None:
        """Give the source's bytes back, and queue what was published for the next level."""
        level = self._levels[write.level]
        for item, slot in zip(write.items, write.slots, strict=True):
            self._queued[write.level].discard(item.block.key)
            item.release()
            if slot not in published:
                continue
            if write.epoch == self._epoch and write.level + 1 < len(self._levels):
                release = partial(level.state.release, [slot])
                self._enqueue(write.level + 1, Pending(item.block, release, self._due_s(), slot))
            else:
                level.state.release([slot])

    def _skip_all(self, index: int, reason: Reason) -> None:
        queue = self._queues[index]
        while queue:
            self._give_up(index, queue.popleft(), reason)

    def _give_up(self, index: int, item: Pending, reason: Reason) -> None:
        self._queued[index].discard(item.block.key)
        self._observer(Skipped(tier=self._levels[index].name, blocks=1, reason=reason))
        item.release()


def _staging(level: Level) -> memoryview:
    return memoryview(aligned_buffer(level.run_blocks * level.sealed.geometry.slot_bytes))


def _cut(staging: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    """Consecutive views of `staging`, each starting on a page."""
    views: list[memoryview] = []
    start = 0
    for size in sizes:
        views.append(staging[start : start + size])
        start += -(-size // 4096) * 4096
    return views
