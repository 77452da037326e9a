"""The live cache below the device: looks up prefixes, restores them verified, stores new blocks.

One thread owns a store and calls every method; I/O runs in the executor, whose jobs only
append to a queue that `poll` drains. No exception of a tier reaches a caller: a block that
is corrupt, late or unreadable ends the usable prefix, is counted with its reason, and is not
asked for again until it was stored anew or a while has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pagoda.core.errors import TierError
from pagoda.core.events import Degraded, Reason
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.policy import REGISTRY
from pagoda.core.suspects import Suspects
from pagoda.store.block import Block
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.health import Care, Examiner
from pagoda.store.level import Level
from pagoda.store.orders import Due, Orders
from pagoda.store.queue import QueueLimits
from pagoda.store.rank import Rank
from pagoda.store.reader import Reader
from pagoda.store.restore import Restore
from pagoda.store.scrub import Scrubber, ScrubPlan
from pagoda.store.shared import Probe, SharedConfig, SharedLevel
from pagoda.store.wear import Wear
from pagoda.store.writer import Hooks, Writer
from pagoda.tiers.remote.breaker import GuardedShared
from pagoda.tiers.remote.sealed import SealedShared
from pagoda.tiers.sealed import SealedTier, reason_of

_FLUSH_WAIT_S = 0.05
_CLOSE_S = 5.0
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Deadlines in seconds; `queue_bytes` bounds what waits to be written in each level."""

    restore_deadline_s: float = 2.0
    write_deadline_s: float = 30.0
    queue_bytes: int = 256 << 20
    policy: str = "lru"
    scrub: ScrubPlan = field(default_factory=ScrubPlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """A shared store: sealed values over a guarded client, and the bounds of its use."""

    sealed: SealedShared
    guard: GuardedShared
    config: SharedConfig


class Store:
    """Ranks of tiers, fastest first, behind one look-up.

    A rank is one or more tiers of equal speed, such as all drives of a node: writes are spread
    over its members, and losing, fencing or draining one costs its blocks and no others. Names
    of tiers are unique. `wears` and `cares`, by tier, say what limits the writing to a medium
    and how to look at its health; a tier without them is memory. `shared` stands below the
    last rank: what no rank holds is read from it, and what the last rank has stored, or could
    not store, is offered to it.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each kind of medium
        self,
        ranks: Sequence[Sequence[SealedTier]],
        *,
        runtime: Runtime,
        config: StoreConfig | None = None,
        wears: Mapping[str, Wear] = _NONE,
        cares: Mapping[str, Care] = _NONE,
        shared: SharedParts | None = None,
    ) -> None:
        self._config = config or StoreConfig()
        policy = REGISTRY[self._config.policy]
        self._ranks = [
            Rank(
                [
                    Level(
                        tier,
                        policy(tier.geometry.slots),
                        runtime.observer,
                        wear=wears.get(tier.name),
                    )
                    for tier in tiers
                ]
            )
            for tiers in ranks
        ]
        self._levels = [level for rank in self._ranks for level in rank.levels]
        names = [level.name for level in self._levels]
        assert len(names) == len(set(names)), f"two tiers have one name: {names}"
        self._runtime = runtime
        self._executor = runtime.executor
        self._clock = runtime.clock
        self._observer = runtime.observer
        self._orders = Orders(runtime)
        self._suspects = Suspects()
        self._shared = _attach(shared, runtime, self._orders)
        self._reader = Reader(
            self._levels,
            runtime=runtime,
            orders=self._orders,
            erase=self._erase,
            suspects=self._suspects,
            shared=self._shared,
        )
        self._writer = Writer(
            self._ranks,
            runtime=runtime,
            orders=self._orders,
            hooks=Hooks(
                withdraw=self._withdraw,
                stored=self._suspects.clear,
                beyond=self._shared.offer if self._shared else None,
            ),
            limits=QueueLimits(
                size_bytes=self._config.queue_bytes, wait_s=self._config.write_deadline_s
            ),
        )
        self._scrubber = Scrubber(
            self._levels,
            runtime=runtime,
            orders=self._orders,
            erase=self._erase,
            plan=self._config.scrub,
        )
        self._examiner = Examiner(self._levels, runtime=runtime, orders=self._orders, cares=cares)

    def rebuild(self) -> None:
        """Index what earlier processes committed. A tier that cannot be read is lost to this
        process as long as its rank has another. Blocks on I/O; raises TierError."""
        for rank in self._ranks:
            rank.rebuild(self._runtime)

    # Reading.

    def probe(self, namespace: NamespaceId, keys: Sequence[Key]) -> Probe:
        """Ask the shared store which blocks of a prefix it has, as far as no rank holds them.
        Once the probe is `done`, which it is at once without a shared store and soon at the
        latest, `match` counts on them."""
        if self._shared is None:
            return Probe([], self._clock(), done=True)
        return self._shared.probe(namespace, keys[self._reader.local(keys) :])

    def match(self, keys: Sequence[Key]) -> int:
        """How many leading blocks could be restored now. Changes nothing."""
        return self._reader.match(keys)

    def restore(self, keys: Sequence[Key], into: Sequence[memoryview]) -> Restore:
        """Read blocks into page-aligned caller-owned buffers, one a key; returns at once.

        The caller keeps the buffers alive and untouched until the restore is `drained`, and
        calls `poll` meanwhile. Buffers of blocks that a tier held but did not deliver are
        zeroed; those of absent blocks are left as they were.
        """
        return self.restore_all([(keys, into)])[0]

    def restore_all(
        self, prefixes: Sequence[tuple[Sequence[Key], Sequence[memoryview]]]
    ) -> list[Restore]:
        """Restore several prefixes, as `restore` does each: small blocks of several requests
        then share their orders, so that what an order costs is paid once."""
        until_s = self._clock() + self._config.restore_deadline_s
        restores = [Restore(keys, into, deadline_s=until_s) for keys, into in prefixes]
        self._reader.start(restores)
        return restores

    # Writing.

    def save(self, blocks: Sequence[Block], release: Callable[[Block], object]) -> None:
        """Store blocks in the background. Their payloads stay untouched until `release` is
        called for each (from `poll` or from here), whether it was stored or skipped."""
        self._writer.add(blocks, release)

    def clear(self) -> int:
        """Drop every block from all levels and their media; returns how many. The shared store
        is everybody's: there, a namespace is cleared at a time (`shared.clear`).

        None of them can be found once this returns, and what is still being written will not
        be found either. Headers are erased in the background.
        """
        self._cancel()
        dropped = 0
        for level in self._levels:
            slots = level.state.published_slots()
            dropped += len(slots)
            self._withdraw(level, slots)
        return dropped

    def drain(self, name: str) -> int:
        """Write no more to a tier; returns how many blocks it holds. They stay readable until
        they are evicted or the tier is gone. Raises TierError for a name that no tier has."""
        level = next((level for level in self._levels if level.name == name), None)
        if level is None:
            known = ", ".join(level.name for level in self._levels)
            raise TierError(f"no tier is called {name!r}", tier=name, remedy=f"there is {known}")
        level.trust.draining = True
        return level.state.published_count()

    # For administration.

    @property
    def runtime(self) -> Runtime:
        """The world as this store knows it."""
        return self._runtime

    @property
    def orders(self) -> Orders:
        """I/O under way, to which an owner may add its own."""
        return self._orders

    @property
    def writing(self) -> bool:
        """Whether a block is on its way into a tier."""
        return not self._writer.idle

    def created_s(self, key: Key) -> int | None:
        """When the oldest copy of a block was written, in seconds since the epoch."""
        found = [
            int(level.sealed.seals.created_s[slot])
            for level in self._levels
            if (slot := level.state.slot_of(key)) is not None
        ]
        return min(found, default=None)

    def discard(self, level: Level, slots: list[int]) -> None:
        """Drop published blocks at once; their headers are erased in the background."""
        self._withdraw(level, slots)

    # Progress.

    def poll(self) -> None:
        """Take in what the I/O threads have done, expire what is late, look after the media."""
        self._settle()
        self._scrubber.poll()
        self._examiner.poll()

    def _settle(self) -> None:
        self._orders.take_in()
        self._orders.expire(self._clock())
        self._writer.expire()
        self._reader.expire()
        if self._shared:
            self._shared.expire()
        self._suspects.expire(self._clock())

    def next_deadline_s(self) -> float | None:
        """When `poll` has something to expire, on the store's clock."""
        deadlines = [
            self._reader.next_deadline_s(),
            self._shared.next_deadline_s() if self._shared else None,
        ]
        return min((at_s for at_s in deadlines if at_s is not None), default=None)

    @property
    def idle(self) -> bool:
        """Nothing is queued or in flight."""
        shared_idle = self._shared is None or self._shared.idle
        return not self._orders.flying and self._writer.idle and shared_idle

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued is committed; False when the time is over first."""
        until_s = self._clock() + timeout_s
        self._settle()
        while not self.idle and self._clock() < until_s:
            self._executor.wait(_FLUSH_WAIT_S)
            self._settle()
        return self.idle

    def close(self, *, flush_s: float) -> bool:
        """Flush within `flush_s`, then close the tiers. False when I/O is stuck: threads may
        still touch the callers' buffers then. A tier that an I/O thread is stuck in, or that
        does not close within a few seconds more, is left open for the process's end."""
        drained = self.flush(flush_s)
        self._cancel()
        self._close_tiers()
        self._executor.close()
        return drained

    def _cancel(self) -> None:
        self._writer.cancel()
        if self._shared:
            self._shared.cancel()

    def _close_tiers(self) -> None:
        until_s = self._clock() + _CLOSE_S
        left = list(self._levels)
        while True:
            for level in [level for level in left if not self._orders.touching(level.name)]:
                self._close_tier(level)
                left.remove(level)
            if not self._orders.any() or self._clock() >= until_s:
                break
            self._executor.wait(_FLUSH_WAIT_S)
            self._settle()
        for level in self._levels:
            if self._orders.touching(level.name):
                self._tell_broken(level, Reason.TIMEOUT, "it is left open: its I/O hangs")
        if self._shared and not self._orders.any():
            self._shared.close()

    def _close_tier(self, level: Level) -> None:
        account = level.wear.budget.settle(self._clock(), self._runtime.wall_ms())

        def job() -> TierError | None:
            error = level.wear.keep(account)
            try:
                level.sealed.close()
            except TierError as failure:
                return failure
            return error

        def closed(error: TierError | None) -> None:
            if error is not None:
                self._tell_broken(level, reason_of(error), error.message)

        self._orders.send(Lane(level.name, Kind.STORE), job, closed)

    def _tell_broken(self, level: Level, reason: Reason, detail: str) -> None:
        self._observer(Degraded(tier=level.name, reason=reason, detail=detail))

    # For people and tests.

    def counts(self) -> dict[str, int]:
        """Published blocks of each level, by name."""
        return {level.name: level.state.published_count() for level in self._levels}

    def scrub_progress(self) -> dict[str, float]:
        """The share of each level that the pass under way has verified; 1 between passes."""
        return self._scrubber.progress()

    def levels(self) -> Sequence[Level]:
        """The levels, fastest first."""
        return self._levels

    @property
    def shared(self) -> SharedLevel | None:
        """The shared store below the ranks, if there is one."""
        return self._shared

    def ranks(self) -> Sequence[Rank]:
        """The ranks, fastest first, with the same levels."""
        return self._ranks

    def check_invariants(self) -> None:
        """Every level and rank adds up; when idle, no lease is left and nothing is under way."""
        for rank in self._ranks:
            rank.check_invariants()
        for level in self._levels:
            level.residency.check_invariants()
            if self.idle:
                assert level.state.lease_count() == 0, f"{level.name}: a lease was leaked"
                assert level.traffic.flying_bytes == 0, f"{level.name}: idle, but under way"

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
                level.write_failed(error, self._clock())

        due = Due(
            until_s=self._clock() + self._config.write_deadline_s,
            late=lambda: level.write_late(self._clock()),
        )
        self._orders.send(Lane(level.name, Kind.STORE), job, erased, due=due)


def _attach(parts: SharedParts | None, runtime: Runtime, orders: Orders) -> SharedLevel | None:
    if parts is None:
        return None
    return SharedLevel(
        parts.sealed, parts.guard, runtime=runtime, orders=orders, config=parts.config
    )


__all__ = ["Block", "Restore", "SharedParts", "Store", "StoreConfig"]
