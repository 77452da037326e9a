"""Nodes that share one store of lies, each stepped by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from pagoda.core.events import Event, Reason, Skipped
from pagoda.core.identity import ROOT, Key, NamespaceId, chain
from pagoda.core.outcome import Outcome
from pagoda.seal.envelope import PLAIN, Envelope
from pagoda.store.block import Block
from pagoda.store.executor import Runtime
from pagoda.store.orders import Orders
from pagoda.store.queue import Pending, Source
from pagoda.store.restore import Restore
from pagoda.store.shared import SharedConfig, SharedLevel
from pagoda.testing.clock import FakeClock
from pagoda.testing.executor import SteppedExecutor
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared
from pagoda.tiers.remote.breaker import GuardedShared
from pagoda.tiers.remote.port import SharedTier
from pagoda.tiers.remote.sealed import Name, SealedShared

SIZE = 512
WAIT_S = 8.0  # a block not written by then is dropped
SPACE = NamespaceId(bytes(range(32)))


class Node:
    """A shared level of its own over a store that others may hold too."""

    def __init__(
        self,
        tier: SharedTier,
        *,
        clock: FakeClock,
        seed: int = 0,
        envelope: Envelope = PLAIN,
        **config: object,
    ) -> None:
        rng = random.Random(seed)
        self.clock = clock
        self.executor = SteppedExecutor(rng)
        self.events: list[Event] = []
        self.released: Counter[Key] = Counter()
        runtime = Runtime(
            executor=self.executor,
            clock=clock,
            wall_ms=clock.wall_ms,
            observer=self.events.append,
        )
        self.orders = Orders(runtime)
        self.guard = GuardedShared(tier, clock=clock, rng=rng)
        self.level = SharedLevel(
            SealedShared(self.guard, envelope=envelope),
            self.guard,
            runtime=runtime,
            orders=self.orders,
            config=SharedConfig(**{"block_bytes": SIZE, "run_bytes": 4 * SIZE} | config),
            bars=lambda namespace: False,
        )

    def poll(self) -> None:
        """What a store's poll does."""
        self.orders.take_in()
        self.level.expire()

    def settle(self) -> None:
        """Run I/O until nothing moves any more."""
        self.poll()
        while self.executor.step():
            self.poll()

    def offer(self, keys: Sequence[Key], *, source: Source | None = None) -> None:
        """Offer a chain's blocks, each with the bytes that its key should have."""
        until_s = self.clock() + WAIT_S
        self.level.offer([self.pending(keys, i, until_s, source) for i in range(len(keys))])

    def pending(
        self, keys: Sequence[Key], index: int, until_s: float, source: Source | None = None
    ) -> Pending:
        """One block, whose release is counted."""
        key = keys[index]
        return Pending(block_of(keys, index), lambda: self.released.update([key]), until_s, source)

    def share(self, keys: Sequence[Key]) -> None:
        """Offer and wait."""
        self.offer(keys)
        self.settle()

    def find(self, keys: Sequence[Key]) -> int:
        """Probe, wait, and count the prefix."""
        self.level.probe(SPACE, keys)
        self.settle()
        return self.level.known_prefix(keys)

    def start(self, keys: Sequence[Key], *, wait_s: float = 2.0) -> Restore:
        """Begin a restore into dirty buffers."""
        restore = Restore(keys, [dirty() for _ in keys], deadline_s=self.clock() + wait_s)
        self.level.fetch(restore, range(len(keys)))
        return restore

    def read(self, keys: Sequence[Key]) -> tuple[list[Outcome], tuple[memoryview, ...]]:
        """Restore and wait for it."""
        restore = self.start(keys)
        self.settle()
        return restore.outcomes, restore.into

    def told(self, kind: type) -> list[Event]:
        """Events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def skipped(self) -> Counter[Reason]:
        """Blocks that were not stored, by reason."""
        return Counter(event.reason for event in self.told(Skipped) for _ in range(event.blocks))


def keys_of(count: int, *, salt: int = 0, space: NamespaceId = SPACE) -> list[Key]:
    """The keys of a prefix of `count` blocks."""
    return chain(space, [salt] * 16 * count, block_tokens=16)


def name_of(key: Key, space: NamespaceId = SPACE) -> str:
    """What a block is called in the shared store."""
    return str(Name(space, key))


def truth(key: Key) -> memoryview:
    """The bytes that belong to a key."""
    return memoryview(key * (SIZE // 32))


def block_of(keys: Sequence[Key], index: int, space: NamespaceId = SPACE) -> Block:
    """The block of a chain at `index`, as a writer hands it on: with its age."""
    return Block(
        namespace=space,
        key=keys[index],
        parent=keys[index - 1] if index else ROOT,
        depth=index,
        tokens=16,
        payload=truth(keys[index]),
        created_ms=1_700_000_000_000,
    )


def dirty() -> memoryview:
    """A buffer with somebody else's bytes."""
    return memoryview(bytearray(b"\xdd" * SIZE))


class Counting(FaultyShared):
    """Remembers what was asked for and what was sent."""

    def __init__(self) -> None:
        super().__init__(MemoryShared())
        self.asked: list[list[str]] = []
        self.sent: list[str] = []
        self.on_get = self.on_has = lambda: None

    def has(self, names):
        self.asked.append(list(names))
        found = super().has(names)
        self.on_has()
        return found

    def put(self, names, values):
        self.sent += names
        super().put(names, values)

    def get(self, names, limit_bytes):
        found = super().get(names, limit_bytes)
        self.on_get()
        return found
