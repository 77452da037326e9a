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
from pagoda.store.restore import Restore
from pagoda.tiers.sealed import Order


@dataclass(slots=True, eq=False)
class Load:
    """A read order on its way: a run of a restore's blocks, from one level."""

    restore: Restore
    fetch: Fetch
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    started: bool = False  # an I/O thread reads
    expired: bool = False  # its deadline has passed
    recalled: bool = False  # no I/O thread had taken it up by then, and none will
    _claim: threading.Lock = field(default_factory=threading.Lock)

    def claim(self) -> bool:
        """Take it up, or call it back: whoever asks first has it, from any thread."""
        return self._claim.acquire(blocking=False)

    @property
    def positions(self) -> range:
        """Which of the restore's blocks."""
        return range(self.fetch.first, self.fetch.first + len(self.fetch.slots))

    @property
    def keys(self) -> tuple[Key, ...]:
        """Of those blocks."""
        return self.restore.keys[self.fetch.first : self.fetch.first + len(self.fetch.slots)]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its buffers."""
        return sum(len(buffer) for buffer in self.into())

    def into(self) -> list[memoryview]:
        """The buffers to read into."""
        return [self.restore.into[position] for position in self.positions]

    def zero(self) -> None:
        """Clear the buffers of an order that is not carried out."""
        for buffer in self.into():
            buffer[:] = bytes(len(buffer))


class Reader:
    """The read half of a store. All methods run in the owner's thread, jobs in I/O threads."""

    def __init__(
        self,
        levels: Sequence[Level],
        *,
        runtime: Runtime,
        orders: Orders,
        erase: Callable[[Level, list[int]], None],
        suspects: Suspects,
    ) -> None:
        self._levels = levels
        self._absent = [TierState(level.name, 0) for level in levels]  # of unreadable levels
        self._suspects = suspects
        self._clock = runtime.clock
        self._observer = runtime.observer
        self._orders = orders
        self._erase = erase
        self._loads: list[Load] = []  # under way

    def match(self, keys: Sequence[Key]) -> int:
        """How many leading blocks could be restored now. Changes nothing."""
        trusted = self._suspects.trusted(keys, self._clock())
        return resident_prefix(self._readable(), keys[:trusted])

    def start(self, restore: Restore) -> None:
        """Order the longest prefix that the levels hold; the blocks behind it are misses at
        once. A suspect block ends the prefix, whoever holds it."""
        runs = [level.run_blocks for level in self._levels]
        trusted = self._suspects.trusted(restore.keys, self._clock())
        fetches = plan_fetches(self._readable(), restore.keys[:trusted], run_blocks=runs)
        found = sum(len(fetch.slots) for fetch in fetches)
        absent = range(found, len(restore.keys))
        reason = Reason.SUSPECT if found == trusted < len(restore.keys) else Reason.ABSENT
        restore.landed(absent, [Miss(reason if i == found else Reason.ABSENT) for i in absent])
        for fetch in fetches:
            self._send(Load(restore, fetch))

    def expire(self) -> None:
        """Give up on what is late. What no I/O thread has taken up is called back, so that
        threads stuck in a drive hold no more than the orders they carry out; the slots and
        buffers of those stay theirs until the I/O has ended."""
        now_s = self._clock()
        for load in list(self._loads):
            if not load.expired and now_s >= load.restore.deadline_s:
                load.recalled = load.claim()
                load.restore.expire(load.positions)
                self._late(load)
                if load.recalled:
                    self._call_back(load)

    def next_deadline_s(self) -> float | None:
        """When `expire` has something to do."""
        waiting = (load.restore.deadline_s for load in self._loads if not load.expired)
        return min(waiting, default=None)

    def _readable(self) -> list[TierState]:
        """States to look up in; a level whose reads are paused looks empty."""
        now_s = self._clock()
        return [
            level.state if level.readable(now_s) else absent
            for level, absent in zip(self._levels, self._absent, strict=True)
        ]

    def _send(self, load: Load) -> None:
        level = self._levels[load.fetch.tier]
        level.state.lease(load.fetch.slots)
        level.residency.touch(load.fetch.slots)
        load.restore.started(load.positions, level.name)
        orders = level.orders(load.fetch.slots, load.keys)
        self._loads.append(load)
        level.traffic.flying_bytes += load.size_bytes
        self._orders.send(
            Lane(level.name, Kind.LOAD), lambda: self._read(load, level, orders), self._landed
        )

    def _read(self, load: Load, level: Level, orders: list[Order]) -> Load:
        """In an I/O thread."""
        if not load.claim():
            return load
        started_s = self._clock()
        if started_s < load.restore.deadline_s:
            load.started = True
            load.outcomes = level.sealed.load(orders, load.into())
        else:  # it waited too long: spare the drive
            load.outcomes = [Unavailable(level.name, Reason.TIMEOUT) for _ in orders]
            load.zero()
        load.seconds = self._clock() - started_s
        return load

    def _call_back(self, load: Load) -> None:
        """Settle an order that nobody carries out."""
        level = self._levels[load.fetch.tier]
        load.zero()
        load.outcomes = [Unavailable(level.name, Reason.TIMEOUT) for _ in load.positions]
        load.restore.landed(load.positions, load.outcomes)
        self._loads.remove(load)
        level.traffic.flying_bytes -= load.size_bytes
        level.state.release(load.fetch.slots)

    def _landed(self, load: Load) -> None:
        if load.recalled:
            return
        level = self._levels[load.fetch.tier]
        self._loads.remove(load)
        level.traffic.flying_bytes -= load.size_bytes
        load.restore.landed(load.positions, load.outcomes)
        bad = [] if load.expired else self._account(load, level)
        level.state.release([slot for slot in load.fetch.slots if slot not in bad])
        if bad:  # released once their headers are erased
            self._erase(level, bad)

    def _account(self, load: Load, level: Level) -> list[int]:
        """Tell what arrived, and keep what did not from being found again: returns its slots."""
        if Unavailable(level.name, Reason.TIMEOUT) in load.outcomes:
            self._late(load)
            return []
        bad: list[int] = []
        arrived: list[memoryview] = []
        rows = zip(load.fetch.slots, load.keys, load.into(), load.outcomes, strict=True)
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
        level = self._levels[load.fetch.tier]
        self._refuse(level, Reason.TIMEOUT, blocks=len(load.fetch.slots))
        level.read_late(load.fetch.slots if load.started else (), self._clock())
        for key in load.keys if load.started else ():
            self._suspects.add(key, self._clock())
