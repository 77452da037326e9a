"""The live cache below the device: looks up prefixes, restores them verified, stores new blocks.

One thread owns a store and calls every method; I/O runs in the executor, whose jobs only
append to a queue that `poll` drains. No exception of a tier reaches a caller: a block that
is corrupt, late or unreadable ends the usable prefix, is counted with its reason, and is not
asked for again until it was stored anew or a while has passed.

This is the façade: `store.reader` restores, `store.writer` stores, `store.scrub` and
`store.health` look after the media, and `store.parts` says how they hang together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pagoda.core.errors import TierError
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.policy import Ending, Request
from pagoda.store.block import Block
from pagoda.store.checks import CheckPlan, Checks
from pagoda.store.closing import WAIT_S, Closing
from pagoda.store.executor import Runtime
from pagoda.store.health import Care
from pagoda.store.level import Level
from pagoda.store.orders import Orders
from pagoda.store.parts import Media, SharedParts, StoreConfig, assemble
from pagoda.store.quarantine import Quarantine
from pagoda.store.rank import Rank
from pagoda.store.restore import Restore
from pagoda.store.shared import Probe, SharedLevel
from pagoda.store.wear import Wear
from pagoda.tiers.sealed import SealedTier

_NONE: Mapping[str, Any] = MappingProxyType({})


class Store:
    """Ranks of tiers, fastest first, behind one look-up.

    A rank is one or more tiers of equal speed, such as all drives of a node: writes are spread
    over its members, and losing, fencing or draining one costs its blocks and no others. Names
    of tiers are unique. `wears` and `cares`, by tier, say what limits the writing to a medium
    and how to look at its health; a tier without them is memory. `shared` stands below the
    last rank: what no rank holds is read from it, and what the last rank has stored, or could
    not store, is offered to it. `quarantine` names the namespaces that are left alone.
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
        quarantine: Quarantine | None = None,
    ) -> None:
        self._config = config or StoreConfig()
        self._runtime = runtime
        self._clock = runtime.clock
        media = Media(wears=wears, cares=cares)
        self._parts = parts = assemble(
            ranks,
            runtime=runtime,
            config=self._config,
            media=media,
            shared=shared,
            quarantine=quarantine or Quarantine(),
        )
        self._levels, self._orders = parts.levels, parts.orders
        self._reader, self._writer, self._shared = parts.reader, parts.writer, parts.shared

    def rebuild(self) -> None:
        """Index what earlier processes committed. A tier that cannot be read is lost to this
        process as long as its rank has another. Blocks on I/O; raises TierError."""
        for rank in self._parts.ranks:
            rank.rebuild(self._runtime)
        self.quarantine.tell(self._runtime.observer)

    # Requests.

    def begin(self, request: Request) -> None:
        """A request comes: the tiers' policies hear of it, and keep what they have of its
        blocks until it has `ended`. Its look-ups follow."""
        self._writer.visits.begin(request)

    @property
    def open_requests(self) -> int:
        """Requests of whose end some tier was not told yet."""
        return self._writer.visits.count

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

    def created_s(self, key: Key) -> int | None:
        """When a block was first stored, in seconds since the epoch, as its oldest copy says."""
        found = [
            int(level.sealed.seals.created_s[slot])
            for level in self._levels
            if (slot := level.state.slot_of(key)) is not None
        ]
        return min(found, default=None)

    # Writing.

    def save(
        self,
        blocks: Sequence[Block],
        release: Callable[[Block], object],
        request: Request | None = None,
    ) -> None:
        """Store blocks in the background, such as those of a request that began. Their payloads
        stay untouched until `release` is called for each (from `poll` or from here), whether it
        was stored or skipped."""
        self._writer.add(blocks, release, request)

    def ended(
        self,
        request: Request,
        ending: Ending,
        blocks: Sequence[Block],
        release: Callable[[Block], object],
    ) -> None:
        """A request that began is over, and its blocks count as used: tiers that lack one are
        offered it again, as by `save`, now that more is known of it. What a tier holds is not
        written again. A tier's policy hears of it once no block waits for the tier any more."""
        self._writer.ended(request, ending)
        self._writer.add(blocks, release, request)
        self._writer.visits.settle(self._clock())

    @property
    def writing(self) -> bool:
        """Whether a block is on its way into a tier."""
        return not self._writer.idle

    @property
    def cancelling(self) -> bool:
        """Whether a write that `clear` found under way still is."""
        return self._writer.cancelling

    # Letting go of blocks.

    def clear(self) -> int:
        """Drop every block from all levels and their media; returns how many. The shared store
        is everybody's: there, a namespace is cleared at a time (`shared.clear`).

        None of them can be found once this returns, and what is still being written will not
        be found either. Headers are erased in the background; those of blocks that had left
        service before stay where they are. `store.clearing` begins with this when everything is
        to go, and ends with the proof that no restart finds any of it.
        """
        self._cancel()
        dropped = 0
        for level in self._levels:
            slots = level.state.published_slots()
            dropped += len(slots)
            self.discard(level, slots)
        return dropped

    def discard(
        self, level: Level, slots: list[int], then: Callable[[], None] | None = None
    ) -> None:
        """Drop published blocks at once; their headers are erased in the background. `then` is
        called once that has ended, well or badly; for no slots, never."""
        self._parts.eraser.withdraw(level, slots, then)

    def drain(self, name: str) -> int:
        """Write no more to a tier while this process lives; returns how many blocks it holds,
        which stay readable. Raises TierError for a name that no tier has."""
        level = next((level for level in self._levels if level.name == name), None)
        if level is None:
            known = ", ".join(level.name for level in self._levels)
            raise TierError(f"no tier is called {name!r}", tier=name, remedy=f"there is {known}")
        level.trust.draining = True
        return level.state.published_count()

    # Progress.

    def poll(self) -> None:
        """Take in what the I/O threads have done, expire what is late, look after the media."""
        self._settle()
        self._parts.scrubber.poll()
        self._parts.examiner.poll()
        self.quarantine.poll(self._orders)

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
        told = not self._writer.visits.leaving
        return not self._orders.flying and self._writer.idle and told and shared_idle

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued is committed; False when the time is over first."""
        until_s = self._clock() + timeout_s
        self._settle()
        while not self.idle and self._clock() < until_s:
            self._runtime.executor.wait(WAIT_S)
            self._settle()
        return self.idle

    def close(self, *, flush_s: float) -> bool:
        """Flush within `flush_s`, then close the tiers. False when I/O is stuck: threads may
        still touch the callers' buffers then. A tier that an I/O thread is stuck in, or that
        does not close within a few seconds more, is left open for the process's end."""
        drained = self.flush(flush_s)
        self._cancel()
        quiet = Closing(self._levels, runtime=self._runtime, orders=self._orders).run(self._settle)
        self.quarantine.close()
        if self._shared and quiet:
            self._shared.close()
        self._runtime.executor.close()
        return drained

    def _cancel(self) -> None:
        """Forget what is queued; what is being written will not be found once it is."""
        self._writer.cancel()
        if self._shared:
            self._shared.cancel()

    def _settle(self) -> None:
        self._orders.take_in()
        self._orders.expire(self._clock())
        self._writer.expire()
        self._reader.expire()
        if self._shared:
            self._shared.expire()
        self._parts.suspects.expire(self._clock())
        self._writer.visits.settle(self._clock())
        for level in self._levels:
            level.tell_stale()

    # What it is made of, for administration, people and tests.

    def ranks(self) -> Sequence[Rank]:
        """The ranks, fastest first."""
        return self._parts.ranks

    def levels(self) -> Sequence[Level]:
        """The levels of all ranks, fastest first."""
        return self._levels

    @property
    def shared(self) -> SharedLevel | None:
        """The shared store below the ranks, if there is one."""
        return self._shared

    @property
    def checks(self) -> Checks:
        """The sampled check of what is stored."""
        return self._parts.checks

    @property
    def quarantine(self) -> Quarantine:
        """The namespaces of which nothing is handed out or stored."""
        return self._parts.quarantine

    @property
    def runtime(self) -> Runtime:
        """The world as this store knows it."""
        return self._runtime

    @property
    def orders(self) -> Orders:
        """I/O under way, to which an owner may add its own."""
        return self._orders

    def counts(self) -> dict[str, int]:
        """Published blocks of each level, by name."""
        return {level.name: level.state.published_count() for level in self._levels}

    def leaders(self) -> dict[str, str]:
        """By level, which order of its policy decides now, where it has several."""
        leaders = {level.name: level.residency.leader for level in self._levels}
        return {name: leader for name, leader in leaders.items() if leader}

    def scrub_progress(self) -> dict[str, float]:
        """The share of each level that the pass under way has verified; 1 between passes."""
        return self._parts.scrubber.progress()

    def check_invariants(self) -> None:
        """Every level and rank adds up; when idle, nothing is under way, and no lease is left but
        those of requests that are not over."""
        self._writer.visits.check_invariants()
        for rank in self._parts.ranks:
            rank.check_invariants()
        for level in self._levels:
            level.residency.check_invariants()
            if self.idle:
                leases = 0 if self.open_requests else level.state.lease_count()
                assert leases == 0, f"{level.name}: {leases} leases were leaked"
                assert level.traffic.flying_bytes == 0, f"{level.name}: idle, but under way"


__all__ = ["Block", "CheckPlan", "Restore", "SharedParts", "Store", "StoreConfig"]
