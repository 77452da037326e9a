"""Scrubbing: cold blocks are read and verified at a bounded rate, before a request needs them.

What nobody asks for rots unseen, and is found when it is too late to be anything but a miss.
Each level is passed over in order of slot, a few blocks an order, in a lane of its own. A pass
does not wait for leased blocks (a request is reading them) and keeps still while loads of the
level are under way or its reads are paused. A bad block leaves service as after a failed read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pagoda.core.events import Scrubbed, ScrubPassed
from pagoda.core.outcome import Corrupt, Hit, Outcome, Unavailable
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.level import Level
from pagoda.store.orders import Due, Orders
from pagoda.tiers.sealed import Order

_DEADLINE_S = 30.0  # a read that takes longer hangs
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubPlan:
    """How fast all levels together are read, in bytes a second (0: not at all), and how far
    apart the beginnings of two passes over one level lie, in seconds."""

    rate_bytes_s: int = 0
    every_s: float = 86_400.0


class Pace:
    """A token bucket of one second's bytes. It may be overdrawn by one order, and then takes
    as long to fill: a block larger than the bucket passes, at the same rate."""

    def __init__(self, rate_bytes_s: int, *, now_s: float) -> None:
        self._rate_bytes_s = rate_bytes_s
        self._left_bytes = float(rate_bytes_s)
        self._filled_s = now_s

    def ready(self, now_s: float) -> bool:
        """Whether an order may be sent now."""
        gained = max(0.0, now_s - self._filled_s) * self._rate_bytes_s
        self._left_bytes = min(float(self._rate_bytes_s), self._left_bytes + gained)
        self._filled_s = max(self._filled_s, now_s)
        return self._left_bytes > 0

    def spend(self, size_bytes: int) -> None:
        """An order of that size was sent."""
        self._left_bytes -= size_bytes


@dataclass(slots=True, eq=False)
class Run:
    """A few leased slots on their way through an I/O thread."""

    slots: list[int]
    orders: list[Order]
    into: list[memoryview]
    size_bytes: int
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    late: bool = False


@dataclass(slots=True, eq=False)
class Pass:
    """How far one level is verified. `slots` are those published when the pass began."""

    level: Level
    slots: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    done: int = 0  # of `slots`
    blocks: int = 0  # verified, or found bad
    bad: int = 0
    began_s: float | None = None
    staging: memoryview | None = None
    flying: Run | None = None

    @property
    def under_way(self) -> bool:
        return self.done < len(self.slots)


class Scrubber:
    """Passes over the levels. All methods run in the owner's thread, jobs in I/O threads."""

    def __init__(
        self,
        levels: Sequence[Level],
        *,
        runtime: Runtime,
        orders: Orders,
        erase: Callable[[Level, list[int]], None],
        plan: ScrubPlan,
    ) -> None:
        self._passes = [Pass(level) for level in levels]
        self._clock = runtime.clock
        self._wall_ms = runtime.wall_ms
        self._observer = runtime.observer
        self._orders = orders
        self._erase = erase
        self._plan = plan
        self._pace = Pace(plan.rate_bytes_s, now_s=runtime.clock())

    def poll(self) -> None:
        """Send what the rate allows, a level at a time."""
        if not self._plan.rate_bytes_s:
            return
        now_s = self._clock()
        for one in self._passes:
            if self._may_read(one, now_s) and self._pace.ready(now_s):
                self._send(one, now_s)
        self._passes = self._passes[1:] + self._passes[:1]  # take turns

    def progress(self) -> dict[str, float]:
        """The share of each level's published blocks that the pass under way has behind it; 1
        between two passes."""
        return {
            one.level.name: one.done / len(one.slots) if one.under_way else 1.0
            for one in self._passes
        }

    def _may_read(self, one: Pass, now_s: float) -> bool:
        if one.flying is not None or not one.level.readable(now_s):
            return False
        if self._orders.busy(Lane(one.level.name, Kind.LOAD)):
            return False
        if not one.under_way and (one.began_s is None or now_s >= one.began_s + self._plan.every_s):
            self._begin(one, now_s)
        return one.under_way

    def _begin(self, one: Pass, now_s: float) -> None:
        """Begin somewhere: processes that never live for a whole pass reach every block yet."""
        slots = np.flatnonzero(one.level.state.published_mask()).astype(np.int32)
        one.slots = np.roll(slots, -(self._wall_ms() % len(slots))) if len(slots) else slots
        one.done = one.blocks = one.bad = 0
        one.began_s = now_s if len(slots) else None

    def _send(self, one: Pass, now_s: float) -> None:
        level = one.level
        slots: list[int] = []
        while one.under_way and len(slots) < level.run_blocks:
            slot = int(one.slots[one.done])
            one.done += 1
            if level.state.key_of(slot) is not None and not level.state.leased(slot):
                slots.append(slot)
        if not slots:
            self._end_if_done(one, now_s)
            return
        level.state.lease(slots)
        keys = [key for slot in slots if (key := level.state.key_of(slot)) is not None]
        into = self._buffers(one, slots)
        run = Run(slots, level.orders(slots, keys), into, sum(map(len, into)))
        one.flying = run
        self._pace.spend(run.size_bytes)
        self._orders.send(
            Lane(level.name, Kind.SCRUB),
            lambda: self._read(level, run),
            lambda landed: self._landed(one, landed),
            due=Due(until_s=now_s + _DEADLINE_S, late=lambda: self._late(level, run)),
        )

    def _buffers(self, one: Pass, slots: Sequence[int]) -> list[memoryview]:
        """A view for each slot, of its payload's size: slots are rounded up to pages."""
        sealed = one.level.sealed
        step = -(-sealed.geometry.slot_bytes // _PAGE_BYTES) * _PAGE_BYTES
        if one.staging is None:
            one.staging = memoryview(aligned_buffer(one.level.run_blocks * step))
        return [
            one.staging[at * step : at * step + sealed.seals.raw_bytes(slot)]
            for at, slot in enumerate(slots)
        ]

    def _read(self, level: Level, run: Run) -> Run:
        """In an I/O thread."""
        started_s = self._clock()
        run.outcomes = level.sealed.load(run.orders, run.into)
        run.seconds = self._clock() - started_s
        return run

    def _late(self, level: Level, run: Run) -> None:
        """The read hangs: the level rests, and these blocks are not found again."""
        run.late = True
        level.read_late(run.slots, self._clock())

    def _landed(self, one: Pass, run: Run) -> None:
        one.flying = None
        level, now_s = one.level, self._clock()
        bad: list[int] = []
        if not run.late:
            bad = self._bad_of(level, run, now_s)
            good = sum(isinstance(outcome, Hit) for outcome in run.outcomes)
            one.blocks += good + len(bad)
            one.bad += len(bad)
            self._observer(
                Scrubbed(
                    tier=level.name,
                    blocks=good + len(bad),
                    bad=len(bad),
                    size_bytes=run.size_bytes,
                    seconds=run.seconds,
                )
            )
        level.state.release([slot for slot in run.slots if slot not in set(bad)])
        if bad:  # released once their headers are erased
            self._erase(level, bad)
        self._end_if_done(one, now_s)

    def _bad_of(self, level: Level, run: Run, now_s: float) -> list[int]:
        """Take blocks that could not be verified out of service; returns their slots."""
        bad: list[int] = []
        for slot, outcome in zip(run.slots, run.outcomes, strict=True):
            if isinstance(outcome, Corrupt | Unavailable):
                level.read_failed(slot, outcome.reason, now_s)
                bad.append(slot)
        return bad

    def _end_if_done(self, one: Pass, now_s: float) -> None:
        if one.under_way or one.began_s is None:
            return
        self._observer(
            ScrubPassed(
                tier=one.level.name,
                blocks=one.blocks,
                bad=one.bad,
                seconds=now_s - one.began_s,
            )
        )
