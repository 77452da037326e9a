"""A store over breakable memory tiers, stepped by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from pagoda.core.checking import Form
from pagoda.core.events import Event
from pagoda.core.identity import ROOT, Key, NamespaceId, chain
from pagoda.core.outcome import Outcome
from pagoda.core.policy import Ending, Request
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.executor import Runtime
from pagoda.store.restore import Restore
from pagoda.store.shared import SharedConfig
from pagoda.store.store import CheckPlan, SharedParts, Store, StoreConfig
from pagoda.store.writer import Block
from pagoda.testing.clock import FakeClock
from pagoda.testing.executor import SteppedExecutor
from pagoda.testing.faults import FaultyTier
from pagoda.tiers.host import HostTier
from pagoda.tiers.remote.breaker import GuardedShared
from pagoda.tiers.remote.port import SharedTier
from pagoda.tiers.remote.sealed import SealedShared
from pagoda.tiers.sealed import SealedTier

SIZE = 4096
NAMESPACE = NamespaceId(bytes(range(32)))


class Named(HostTier):
    """A memory tier under another name."""

    def __init__(self, name: str, slots: int) -> None:
        super().__init__(slots=slots, slot_bytes=SIZE)
        self.name = name


class Harness:
    """Upper and lower tier, a clock, an executor, and every event that was told."""

    def __init__(
        self,
        *,
        upper: int = 16,
        lower: int = 32,
        seed: int = 0,
        queue_bytes: int = 1 << 30,
        admission: str = "all",
        shared: SharedTier | None = None,
        clock: FakeClock | None = None,
        check: CheckPlan | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.rng = random.Random(seed)
        self.shared = shared
        self.executor = SteppedExecutor(random.Random(seed))
        self.events: list[Event] = []
        self.upper = FaultyTier(Named("upper", upper))
        self.lower = FaultyTier(Named("lower", lower))
        self.queue_bytes = queue_bytes
        self.admission = admission
        self.check = check
        self.released: Counter[Key] = Counter()
        self.open()

    def open(self) -> None:
        """A store over the tiers as they are now (a restart when called again)."""
        self.store = Store(
            self.ranks(),
            runtime=Runtime(
                executor=self.executor,
                clock=self.clock,
                wall_ms=self.clock.wall_ms,
                observer=self.events.append,
            ),
            config=StoreConfig(
                restore_deadline_s=2.0,
                write_deadline_s=30.0,
                queue_bytes=self.queue_bytes,
                admission=self.admission,
                check=self.check,
            ),
            **self.care(),
        )
        self.store.rebuild()

    def ranks(self) -> list[list[SealedTier]]:
        """The tiers that have slots, each a rank of its own."""
        return [[SealedTier(tier)] for tier in (self.upper, self.lower) if tier.geometry.slots]

    def care(self) -> dict[str, object]:
        """What else the store is given of its media."""
        if self.shared is None:
            return {}
        guard = GuardedShared(self.shared, clock=self.clock, rng=self.rng)
        config = SharedConfig(block_bytes=SIZE, run_bytes=8 * SIZE)
        parts = SharedParts(sealed=SealedShared(guard), guard=guard, config=config)
        return {"shared": parts}

    def save(self, keys: Sequence[Key], request: Request | None = None) -> None:
        """Queue a chain's blocks, each with the bytes that its key should have."""
        self.store.save(blocks_of(keys), self._take_back, request)

    def begin(self, keys: Sequence[Key]) -> Request:
        """A request for a chain comes."""
        request = Request(keys=keys, at_s=self.clock(), tokens=16 * len(keys))
        self.store.begin(request)
        return request

    def end(
        self, keys: Sequence[Key], created_ms: int | None = None, *, request: Request | None = None
    ) -> None:
        """A request for a chain, which began just now if it has not, ends. All of its blocks are
        on the device."""
        ending = Ending(keys=keys, at_s=self.clock(), output_tokens=16)
        self.store.ended(
            request or self.begin(keys), ending, blocks_of(keys, created_ms), self._take_back
        )

    def _take_back(self, block: Block) -> None:
        """The caller's memory is its own again, and is used for something else at once."""
        self.released.update([block.key])
        block.payload[:] = b"\xee" * len(block.payload)

    def settle(self) -> None:
        """Run I/O until nothing moves any more."""
        self.store.poll()
        while self.executor.step():
            self.store.poll()
        self.store.poll()

    def save_all(self, keys: Sequence[Key]) -> None:
        """Store a chain in every tier."""
        self.save(keys)
        self.settle()

    def read(self, keys: Sequence[Key]) -> tuple[list[Outcome], list[memoryview]]:
        """Restore and wait for it."""
        restore, buffers = self.start(keys)
        self.settle()
        return restore.outcomes, buffers

    def start(self, keys: Sequence[Key]) -> tuple[Restore, list[memoryview]]:
        """Begin a restore into dirty buffers."""
        buffers = [dirty() for _ in keys]
        return self.store.restore(keys, buffers), buffers

    def told(self, kind: type) -> list[Event]:
        """Events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def slot(self, tier: str, key: Key) -> int:
        """Where a tier holds a key."""
        level = next(level for level in self.store.levels() if level.name == tier)
        slot = level.state.slot_of(key)
        assert slot is not None, f"{tier} does not hold the key"
        return slot


def blocks_of(keys: Sequence[Key], created_ms: int | None = None) -> list[Block]:
    """A chain's blocks as the device has them."""
    return [
        Block(
            namespace=NAMESPACE,
            key=key,
            parent=keys[i - 1] if i else ROOT,
            depth=i,
            tokens=16,
            payload=truth(key),
            created_ms=created_ms,
        )
        for i, key in enumerate(keys)
    ]


def keys_of(count: int, *, salt: int = 0) -> list[Key]:
    """The keys of a prefix of `count` blocks."""
    return chain(NAMESPACE, [salt] * 16 * count, block_tokens=16)


def check_plan(*, rate: float = 1.0, most_blocks: int = 1000) -> CheckPlan:
    """Every request is checked, to the bit."""
    form = Form(dtype="float32", parts=4, part_bytes=SIZE // 4, exact=True)
    return CheckPlan(rate=rate, most_blocks=most_blocks, form=form, key=b"test")


def truth(key: Key) -> memoryview:
    """The bytes that belong to a key."""
    buffer = memoryview(aligned_buffer(SIZE))[:SIZE]
    buffer[:] = key * (SIZE // 32)
    return buffer


def dirty() -> memoryview:
    """A buffer with somebody else's bytes."""
    buffer = memoryview(aligned_buffer(SIZE))[:SIZE]
    buffer[:] = b"\xdd" * SIZE
    return buffer
