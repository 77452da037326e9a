"""The live cache below the device: looks up prefixes, restores them verified, stores new blocks.

One thread owns a store and calls every method; I/O runs in the executor, whose jobs only
append to a queue that `poll` drains. Levels are ordered fastest first. No exception of a
tier reaches a caller: a block that is corrupt, late or unreadable ends the usable prefix,
is counted with its reason, and is not found again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagoda.core.decide import Fetch, plan_fetches, resident_prefix
from pagoda.core.errors import TierError
from pagoda.core.events import Degraded, Reason, Rebuilt, Refused, Restored
from pagoda.core.identity import Key
from pagoda.core.outcome import Corrupt, Hit, Miss, Outcome, Unavailable
from pagoda.core.policy import REGISTRY
from pagoda.core.state import TierState
from pagoda.store.executor import Lane, Runtime
from pagoda.store.level import Level
from pagoda.store.restore import Restore
from pagoda.store.writer import Block, QueueLimits, Write, Writer
from pagoda.tiers.sealed import Order, SealedTier

_FLUSH_WAIT_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Deadlines in seconds; `queue_bytes` bounds what waits to be written in each level."""

    restore_deadline_s: float = 2.0
    write_deadline_s: float = 30.0
    queue_bytes: int = 256 << 20
    policy: str = "lru"


@dataclass(slots=True, eq=False)
class _Load:
    """A read order on its way."""

    restore: Restore
    fetch: Fetch
    positions: range
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    started: bool = False  # an I/O thread has taken it up
    expired: bool = False  # its deadline has passed


@dataclass(slots=True, eq=False)
class _Erase:
    """Headers being erased; the slots are leased until it is done."""

    level: int
    slots: list[int]
    error: TierError | None = None


_Completion = _Load | Write | _Erase


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
        self._wake = runtime.wake
        self._completions: deque[_Completion] = deque()
        self._loads: list[_Load] = []  # reads under way
        self._erasing = 0
        self._writer = Writer(
            self._levels,
            runtime=runtime,
            submit=self._submit_write,
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
        return resident_prefix(self._readable(), keys)

    def restore(self, keys: Sequence[Key], into: Sequence[memoryview]) -> Restore:
        """Read blocks into page-aligned caller-owned buffers, one a key; returns at once.

        The caller keeps the buffers alive and untouched until the restore is `drained`, and
        calls `poll` meanwhile. Buffers of blocks that a tier held but did not deliver are
        zeroed; those of absent blocks are left as they were.
        """
        restore = Restore(keys, into, deadline_s=self._clock() + self._config.restore_deadline_s)
        readable = self._readable()
        runs = [level.run_blocks for level in self._levels]
        fetches = plan_fetches(readable, keys, run_blocks=runs)
        found = sum(len(fetch.slots) for fetch in fetches)
        absent: list[Outcome] = [Miss() for _ in keys[found:]]
        restore.landed(range(found, len(keys)), absent)
        for fetch in fetches:
            self._start_load(restore, fetch)
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
        for index, level in enumerate(self._levels):
            slots = [slot for _, slot in level.state.published()]
            dropped += len(slots)
            self._withdraw(index, slots)
        return dropped

    # Progress.

    def poll(self) -> None:
        """Take in what the I/O threads have done, and expire what is late."""
        while self._completions:
            completion = self._completions.popleft()
            match completion:
                case _Load():
                    self._loaded(completion)
                case Write():
                    self._writer.landed(completion)
                case _Erase():
                    self._erased(completion)
        self._writer.expire()
        now_s = self._clock()
        for load in self._loads:
            if not load.expired and now_s >= load.restore.deadline_s:
                load.restore.expire(load.positions)
                self._expire(load)

    def next_deadline_s(self) -> float | None:
        """When `poll` has something to expire, on the store's clock."""
        waiting = (load.restore.deadline_s for load in self._loads if not load.expired)
        return min(waiting, default=None)

    @property
    def idle(self) -> bool:
        """Nothing is queued or in flight."""
        return not self._loads and not self._erasing and self._writer.idle

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

    def _readable(self) -> list[TierState]:
        """States to look up in; a level whose reads are paused looks empty."""
        now_s = self._clock()
        return [
            level.state if level.readable(now_s) else TierState(level.name, 0)
            for level in self._levels
        ]

    def _start_load(self, restore: Restore, fetch: Fetch) -> None:
        level = self._levels[fetch.tier]
        positions = range(fetch.first, fetch.first + len(fetch.slots))
        level.state.lease(fetch.slots)
        level.residency.touch(fetch.slots)
        restore.started(positions, level.name)
        orders = level.orders(fetch.slots, [restore.keys[i] for i in positions])
        into = [restore.into[i] for i in positions]
        load = _Load(restore, fetch, positions)
        self._loads.append(load)
        self._executor.submit(
            Lane.LOAD, lambda: self._complete(self._load(load, level.sealed, orders, into))
        )

    def _load(
        self, load: _Load, sealed: SealedTier, orders: list[Order], into: list[memoryview]
    ) -> _Load:
        """In an I/O thread."""
        started_s = self._clock()
        if started_s >= load.restore.deadline_s:  # it waited too long: spare the drive
            load.outcomes = [Unavailable(sealed.name, Reason.TIMEOUT) for _ in orders]
            for buffer in into:
                buffer[:] = bytes(len(buffer))
        else:
            load.started = True
            load.outcomes = sealed.load(orders, into)
        load.seconds = self._clock() - started_s
        return load

    def _loaded(self, load: _Load) -> None:
        level = self._levels[load.fetch.tier]
        self._loads.remove(load)
        load.restore.landed(load.positions, load.outcomes)
        bad = [] if load.expired else self._account(load, level)
        level.state.release([slot for slot in load.fetch.slots if slot not in bad])
        if bad:  # released once their headers are erased
            self._erase(load.fetch.tier, bad)

    def _account(self, load: _Load, level: Level) -> list[int]:
        """Tell what arrived, and keep what did not from being found again: returns its slots."""
        if any(outcome == Unavailable(level.name, Reason.TIMEOUT) for outcome in load.outcomes):
            self._expire(load)
            return []
        bad: list[int] = []
        hits = 0
        size_bytes = 0
        for position, outcome in zip(load.positions, load.outcomes, strict=True):
            slot = load.fetch.slots[position - load.fetch.first]
            match outcome:
                case Hit():
                    hits += 1
                    size_bytes += len(load.restore.into[position])
                case Corrupt(reason=reason) | Unavailable(reason=reason):
                    self._observer(Refused(tier=level.name, blocks=1, reason=reason))
                    level.read_failed(slot, reason, self._clock())
                    bad.append(slot)
                case Miss(reason=reason):
                    self._observer(Refused(tier=level.name, blocks=1, reason=reason))
        if hits:
            level.read_succeeded()
            self._observer(
                Restored(tier=level.name, blocks=hits, size_bytes=size_bytes, seconds=load.seconds)
            )
        return bad

    def _expire(self, load: _Load) -> None:
        """A read is late: the request goes on without it, the level rests, and blocks whose
        I/O hangs are not found again. The slots stay leased until the I/O ends."""
        load.expired = True
        level = self._levels[load.fetch.tier]
        blocks = len(load.fetch.slots)
        self._observer(Refused(tier=level.name, blocks=blocks, reason=Reason.TIMEOUT))
        level.read_late(load.fetch.slots if load.started else (), self._clock())

    def _withdraw(self, index: int, slots: list[int]) -> None:
        if slots:
            self._levels[index].withdraw(slots)
            self._erase(index, slots)

    def _erase(self, index: int, slots: list[int]) -> None:
        """Erase the headers of slots that are leased for it."""
        self._erasing += 1
        erase = _Erase(index, slots)
        sealed = self._levels[index].sealed

        def job() -> None:
            try:
                sealed.free(slots)
            except TierError as error:
                erase.error = error
            self._complete(erase)

        self._executor.submit(Lane.STORE, job)

    def _erased(self, erase: _Erase) -> None:
        self._erasing -= 1
        level = self._levels[erase.level]
        level.state.release(erase.slots)
        if erase.error is not None:
            level.write_failed(erase.error, Reason.IO_ERROR, self._clock())

    def _submit_write(self, job: Callable[[], Write]) -> None:
        self._executor.submit(Lane.STORE, lambda: self._complete(job()))

    def _complete(self, completion: _Completion) -> None:
        """In an I/O thread: hand a result to the owner."""
        self._completions.append(completion)
        self._wake()


__all__ = ["Block", "Restore", "Store", "StoreConfig"]
