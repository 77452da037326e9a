"""The live cache below the device: looks up prefixes, restores them verified, stores new blocks.

One thread owns a store and calls every method; I/O runs in the executor, whose jobs only
append to a queue that `poll` drains. Levels are ordered fastest first. No exception of a
tier reaches a caller: a block that is corrupt, late or unreadable ends the usable prefix,
is counted with its reason, and is not found again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagoda.core.errors import TierError
from pagoda.core.events import Degraded, Reason, Rebuilt
from pagoda.core.identity import Key
from pagoda.core.policy import REGISTRY
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.level import Level
from pagoda.store.orders import Orders
from pagoda.store.reader import Reader
from pagoda.store.restore import Restore
from pagoda.store.writer import Block, QueueLimits, Writer
from pagoda.tiers.sealed import SealedTier, reason_of

_FLUSH_WAIT_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Deadlines in seconds; `queue_bytes` bounds what waits to be written in each level."""

    restore_deadline_s: float = 2.0
    write_deadline_s: float = 30.0
    queue_bytes: int = 256 << 20
    policy: str = "lru"


class Store:
    """Tiers, fastest first, behind one look-up."""

    def __init__(
        self, tiers: Sequence[SealedTier], *, runtime: Runtime, config: StoreConfig | None = None
    ) -> None:
        self._config = config or StoreConfig()
        policy = REGISTRY[self._config.policy]
        self._levels = [Level(tier, policy(), runtime.observer) for tier in tiers]
        self._executor = runtime.executor
        self._clock = runtime.clock
        self._observer = runtime.observer
        self._orders = Orders(runtime)
        self._reader = Reader(self._levels, runtime=runtime, orders=self._orders, erase=self._erase)
        self._writer = Writer(
            self._levels,
            runtime=runtime,
            orders=self._orders,
            withdraw=self._withdraw,
            limits=QueueLimits(
                size_bytes=self._config.queue_bytes, wait_s=self._config.write_deadline_s
            ),
        )

    def rebuild(self) -> None:
        """Index what earlier processes committed. Blocks on I/O; raises TierError."""
        for level in self._levels:
            started_s = self._clock()
            blocks, dropped = level.rebuild()
            seconds = self._clock() - started_s
            self._observer(
                Rebuilt(tier=level.name, blocks=blocks, dropped=dropped, seconds=seconds)
            )

    # Reading.

    def match(self, keys: Sequence[Key]) -> int:
        """How many leading blocks could be restored now. Changes nothing."""
        return self._reader.match(keys)

    def restore(self, keys: Sequence[Key], into: Sequence[memoryview]) -> Restore:
        """Read blocks into page-aligned caller-owned buffers, one a key; returns at once.

        The caller keeps the buffers alive and untouched until the restore is `drained`, and
        calls `poll` meanwhile. Buffers of blocks that a tier held but did not deliver are
        zeroed; those of absent blocks are left as they were.
        """
        restore = Restore(keys, into, deadline_s=self._clock() + self._config.restore_deadline_s)
        self._reader.start(restore)
        return restore

    # Writing.

    def save(self, blocks: Sequence[Block], release: Callable[[Block], object]) -> None:
        """Store blocks in the background. Their payloads stay untouched until `release` is
        called for each (from `poll` or from here), whether it was stored or skipped."""
        if self._levels:
            self._writer.add(blocks, release)
        else:
            for block in blocks:
                release(block)

    def clear(self) -> int:
        """Drop every block from all levels and their media; returns how many.

        None of them can be found once this returns, and what is still being written will not
        be found either. Headers are erased in the background.
        """
        self._writer.cancel()
        dropped = 0
        for level in self._levels:
            slots = [slot for _, slot in level.state.published()]
            dropped += len(slots)
            self._withdraw(level, slots)
        return dropped

    # Progress.

    def poll(self) -> None:
        """Take in what the I/O threads have done, and expire what is late."""
        self._orders.take_in()
        self._writer.expire()
        self._reader.expire()

    def next_deadline_s(self) -> float | None:
        """When `poll` has something to expire, on the store's clock."""
        return self._reader.next_deadline_s()

    @property
    def idle(self) -> bool:
        """Nothing is queued or in flight."""
        return not self._orders.flying and self._writer.idle

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued is committed; False when the time is over first."""
        until_s = self._clock() + timeout_s
        self.poll()
        while not self.idle and self._clock() < until_s:
            self._executor.wait(_FLUSH_WAIT_S)
            self.poll()
        return self.idle

    def close(self, *, flush_s: float) -> bool:
        """Flush within `flush_s`, then close the tiers. False when I/O is stuck: the tiers are
        left open then, and threads may still touch the callers' buffers."""
        drained = self.flush(flush_s)
        self._writer.cancel()
        self._executor.close()
        for level in self._levels if drained else []:
            try:
                level.sealed.close()
            except TierError as error:
                self._observer(
                    Degraded(tier=level.name, reason=Reason.IO_ERROR, detail=error.message)
                )
        return drained

    # For people and tests.

    def counts(self) -> dict[str, int]:
        """Published blocks of each level, by name."""
        return {level.name: level.state.published_count() for level in self._levels}

    def levels(self) -> Sequence[Level]:
        """The levels, fastest first."""
        return self._levels

    def check_invariants(self) -> None:
        """Every level adds up; when idle, no lease is left."""
        for level in self._levels:
            level.residency.check_invariants()
            if self.idle:
                assert level.state.lease_count() == 0, f"{level.name}: a lease was leaked"

    def _withdraw(self, level: Level, slots: list[int]) -> None:
        if slots:
            level.withdraw(slots)
            self._erase(level, slots)

    def _erase(self, level: Level, slots: list[int]) -> None:
        """Erase the headers of slots that are leased for it, then give the leases back."""

        def job() -> TierError | None:
            try:
                level.sealed.free(slots)
            except TierError as error:
                return error
            return None

        def erased(error: TierError | None) -> None:
            level.state.release(slots)
            if error is not None:
                level.write_failed(error, reason_of(error), self._clock())

        self._orders.send(Lane(level.name, Kind.STORE), job, erased)


__all__ = ["Block", "Restore", "Store", "StoreConfig"]
