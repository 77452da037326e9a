"""Restoring: read orders under leases and deadlines, and what becomes of bad blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagoda.core.decide import Fetch, plan_fetches, resident_prefix
from pagoda.core.events import Reason, Refused, Restored
from pagoda.core.identity import Key
from pagoda.core.outcome import Corrupt, Hit, Miss, Outcome, Unavailable
from pagoda.core.state import TierState
from pagoda.core.suspects import Suspects
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.level import Level
from pagoda.store.orders import Orders
from pagoda.store.quarantine import Quarantine
from pagoda.store.restore import Restore
from pagoda.store.shared import SharedLevel
from pagoda.tiers.sealed import Order


@dataclass(frozen=True, slots=True)
class Part:
    """A run of one restore's blocks."""

    restore: Restore
    positions: range


@dataclass(slots=True, eq=False)
class Load:
    """A read order on its way: blocks of one level, for one restore or for several."""

    tier: int
    deadline_s: float
    parts: list[Part] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    into: list[memoryview] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    size_bytes: int = 0  # of all its buffers
    seconds: float = 0.0
    started: bool = False  # an I/O thread reads
    expired: bool = False  # its deadline has passed
    recalled: bool = False  # no I/O thread had taken it up by then, and none will
    _claim: threading.Lock = field(default_factory=threading.Lock)

    def add(self, restore: Restore, fetch: Fetch) -> None:
        """One more run of blocks."""
        positions = range(fetch.first, fetch.first + len(fetch.slots))
        buffers = restore.into[positions.start : positions.stop]
        self.parts.append(Part(restore, positions))
        self.slots += fetch.slots
        self.keys += restore.keys[positions.start : positions.stop]
        self.into += buffers
        self.size_bytes += sum(map(len, buffers))
        self.deadline_s = min(self.deadline_s, restore.deadline_s)

    def claim(self) -> bool:
        """Take it up, or call it back: whoever asks first has it, from any thread."""
        return self._claim.acquire(blocking=False)

    def settle(self) -> None:
        """Tell each restore what became of its blocks."""
        first = 0
        for part in self.parts:
            last = first + len(part.positions)
            part.restore.landed(part.positions, self.outcomes[first:last])
            first = last

    def zero(self) -> None:
        """Clear the buffers of an order that is not carried out."""
        for buffer in self.into:
            buffer[:] = bytes(len(buffer))


class Reader:
    """The read half of a store. All methods run in the owner's thread, jobs in I/O threads."""

    def __init__(  # noqa: PLR0913 - where it looks, and what it does about what it finds
        self,
        levels: Sequence[Level],
        *,
        runtime: Runtime,
        orders: Orders,
        erase: Callable[[Level, list[int]], None],
        suspects: Suspects,
        quarantine: Quarantine,
        shared: SharedLevel | None,
    ) -> None:
        self._levels = levels
        self._absent = [TierState(level.name, 0) for level in levels]  # of unreadable levels
        self._suspects = suspects
        self._quarantine = quarantine
        self._shared = shared
        self._clock = runtime.clock
        self._observer = runtime.observer
        self._orders = orders
        self._erase = erase
        self._runs = [level.read_blocks for level in levels]
        self._loads: dict[Load, None] = {}  # under way, in order of sending

    def match(self, keys: Sequence[Key]) -> int:
        """How many leading blocks could be restored now. Changes nothing."""
        trusted = keys[: self._trusted(keys)]
        local = self.local(trusted)
        return local + (self._shared.known_prefix(trusted[local:]) if self._shared else 0)

    def local(self, keys: Sequence[Key]) -> int:
        """How many leading blocks the levels hold. Changes nothing."""
        return resident_prefix(self._readable(), keys)

    def start(self, restores: Sequence[Restore]) -> None:
        """Order the longest prefix that the levels hold of each, and what the shared store should
        have of the rest; the blocks behind that are misses at once. A suspect block ends its
        prefix, whoever holds it. Short runs of one level are ordered together, until an order
        has its usual size."""
        states = self._readable()
        gathering: dict[int, Load] = {}
        for restore in restores:
            for fetch in self._plan(states, restore):
                self._hold(restore, fetch)
                load = gathering.get(fetch.tier)
                most = self._runs[fetch.tier]
                if load is None or len(load.slots) + len(fetch.slots) > most:
                    if load is not None:
                        self._send(load)
                    load = gathering[fetch.tier] = Load(fetch.tier, restore.deadline_s)
                load.add(restore, fetch)
        for load in gathering.values():
            self._send(load)

    def expire(self) -> None:
        """Give up on what is late. What no I/O thread has taken up is called back, so that
        threads stuck in a drive hold no more than the orders they carry out; the slots and
        buffers of those stay theirs until the I/O has ended."""
        now_s = self._clock()
        for load in list(self._loads):
            if not load.expired and now_s >= load.deadline_s:
                load.recalled = load.claim()
                for part in load.parts:
                    part.restore.expire(part.positions)
                self._late(load)
                if load.recalled:
                    self._call_back(load)

    def next_deadline_s(self) -> float | None:
        """When `expire` has something to do."""
        waiting = (load.deadline_s for load in self._loads if not load.expired)
        return min(waiting, default=None)

    def _readable(self) -> list[TierState]:
        """States to look up in; a level whose reads are paused looks empty."""
        now_s = self._clock()
        return [
            level.state if level.readable(now_s) else absent
            for level, absent in zip(self._levels, self._absent, strict=True)
        ]

    def _trusted(self, keys: Sequence[Key]) -> int:
        """Length of the prefix that nobody has a doubt about: none of it was bad of late, or lies
        in a level as a block of a namespace in quarantine. Changes nothing."""
        trusted = self._suspects.trusted(keys, self._clock())
        if self._quarantine.count:
            barred = (at for at, key in enumerate(keys[:trusted]) if self._barred(key))
            return next(barred, trusted)
        return trusted

    def _barred(self, key: Key) -> bool:
        for level in self._levels:
            slot = level.state.slot_of(key)
            if slot is not None and self._quarantine.bars(level.sealed.seals.namespace(slot)):
                return True
        return False

    def _plan(self, states: Sequence[TierState], restore: Restore) -> list[Fetch]:
        trusted = self._trusted(restore.keys)
        fetches = plan_fetches(states, restore.keys[:trusted], run_blocks=self._runs)
        found = sum(len(fetch.slots) for fetch in fetches)
        if self._shared:
            found = self._fetch_shared(self._shared, restore, range(found, trusted))
        if found < len(restore.keys):
            absent = range(found, len(restore.keys))
            misses = [Miss(Reason.ABSENT) for _ in absent]
            if found == trusted:
                barred = self._barred(restore.keys[found])
                misses[0] = Miss(Reason.QUARANTINED if barred else Reason.SUSPECT)
            restore.landed(absent, misses)
        return fetches

    def _fetch_shared(self, shared: SharedLevel, restore: Restore, behind: range) -> int:
        """Order what the shared store should have of the positions behind what the levels
        hold; returns the first position that nobody has."""
        known = shared.known_prefix(restore.keys[behind.start : behind.stop])
        shared.fetch(restore, behind[:known])
        return behind.start + known

    def _hold(self, restore: Restore, fetch: Fetch) -> None:
        """Lease what will be read, before anything else is decided."""
        level = self._levels[fetch.tier]
        level.state.lease(fetch.slots)
        level.residency.touch(fetch.slots)
        restore.started(range(fetch.first, fetch.first + len(fetch.slots)), level.name)

    def _send(self, load: Load) -> None:
        level = self._levels[load.tier]
        orders = level.orders(load.slots, load.keys)
        self._loads[load] = None
        level.traffic.flying_bytes += load.size_bytes
        self._orders.send(
            Lane(level.name, Kind.LOAD), lambda: self._read(load, level, orders), self._landed
        )

    def _read(self, load: Load, level: Level, orders: list[Order]) -> Load:
        """In an I/O thread."""
        if not load.claim():
            return load
        started_s = self._clock()
        if started_s < load.deadline_s:
            load.started = True
            load.outcomes = level.sealed.load(orders, load.into)
        else:  # it waited too long: spare the drive
            load.outcomes = [Unavailable(level.name, Reason.TIMEOUT) for _ in orders]
            load.zero()
        load.seconds = self._clock() - started_s
        return load

    def _call_back(self, load: Load) -> None:
        """Settle an order that nobody carries out."""
        level = self._levels[load.tier]
        load.zero()
        load.outcomes = [Unavailable(level.name, Reason.TIMEOUT) for _ in load.slots]
        load.settle()
        del self._loads[load]
        level.traffic.flying_bytes -= load.size_bytes
        level.state.release(load.slots)

    def _landed(self, load: Load) -> None:
        if load.recalled:
            return
        level = self._levels[load.tier]
        del self._loads[load]
        level.traffic.flying_bytes -= load.size_bytes
        load.settle()
        bad = [] if load.expired else self._account(load, level)
        left = list(load.slots)  # a slot may be there for two requests, and be bad for one
        for slot in bad:
            left.remove(slot)
        level.state.release(left)
        if bad:  # released once their headers are erased
            self._erase(level, bad)

    def _account(self, load: Load, level: Level) -> list[int]:
        """Tell what arrived, and keep what did not from being found again: returns its slots."""
        if Unavailable(level.name, Reason.TIMEOUT) in load.outcomes:
            self._late(load)
            return []
        bad: list[int] = []
        arrived: list[memoryview] = []
        rows = zip(load.slots, load.keys, load.into, load.outcomes, strict=True)
        for slot, key, buffer, outcome in rows:
            match outcome:
                case Hit():
                    arrived.append(buffer)
                case Miss(reason=reason):
                    self._refuse(level, reason)
                case Corrupt(reason=reason) | Unavailable(reason=reason):
                    self._refuse(level, reason)
                    level.read_failed(slot, reason, self._clock())
                    self._suspects.add(key, self._clock())
                    bad.append(slot)
        if arrived:
            self._tell_arrived(level, arrived, load.seconds)
        return bad

    def _tell_arrived(self, level: Level, arrived: list[memoryview], seconds: float) -> None:
        level.trust.read_succeeded()
        self._observer(
            Restored(
                tier=level.name,
                blocks=len(arrived),
                size_bytes=sum(len(buffer) for buffer in arrived),
                seconds=seconds,
            )
        )

    def _refuse(self, level: Level, reason: Reason, blocks: int = 1) -> None:
        self._observer(Refused(tier=level.name, blocks=blocks, reason=reason))

    def _late(self, load: Load) -> None:
        """The request goes on without it, the level rests, and blocks whose I/O hangs are not
        found again."""
        load.expired = True
        level = self._levels[load.tier]
        self._refuse(level, Reason.TIMEOUT, blocks=len(load.slots))
        level.read_late(load.slots if load.started else (), self._clock())
        for key in load.keys if load.started else ():
            self._suspects.add(key, self._clock())
