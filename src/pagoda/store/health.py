"""Looking after media: is there space, what does the drive say of itself, does it work again.

Space is looked at often and a drive is asked seldom, both in a lane of their own, for either
may hang. A level that was fenced for its faults gets a trial now and then: a block is written,
read back through its seal and erased; when that works, it is trusted again. What lifts each
fence is in store.trust.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pagoda.core.errors import TierError
from pagoda.core.events import Examined, Reason
from pagoda.core.identity import ROOT, NamespaceId
from pagoda.core.outcome import Hit
from pagoda.machine.buffers import aligned_buffer
from pagoda.machine.smart import DriveHealth
from pagoda.store.block import Block
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.level import Level
from pagoda.store.orders import Due, Orders
from pagoda.store.trust import Fence
from pagoda.tiers.sealed import Order

SPACE_EVERY_S = 30.0
HEALTH_EVERY_S = 600.0
TRIAL_EVERY_S = 60.0
_LATE_S = 30.0
_WORN_OUT_PERCENT = 100
# Heat passes, and a full slab is not the drive's fault; the other warnings mean lost data.
_PASSING_WARNING = "too hot or too cold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Bytes free on a file system, and how many have to stay so."""

    free_bytes: int
    floor_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """How to look at a medium that can fill up and fail. Both run in I/O threads and may block;
    `space` raises TierError."""

    space: Callable[[], Space]
    health: Callable[[], DriveHealth]


@dataclass(slots=True, eq=False)
class _Patient:
    """A level, how to look at it, what was found last, and what is due when."""

    level: Level
    care: Care | None
    space_due_s: float
    health_due_s: float
    trial_due_s: float = 0.0
    looking: bool = False
    trying: bool = False
    space: Space | None = None
    health: DriveHealth = field(default_factory=DriveHealth)


@dataclass(slots=True)
class _Look:
    """What one look is for, and what it found."""

    care: Care
    at_health: bool
    space: Space | None = None
    health: DriveHealth | None = None
    error: TierError | None = None

    def carry_out(self) -> _Look:
        """In an I/O thread."""
        try:
            self.space = self.care.space()
        except TierError as error:
            self.error = error
        if self.at_health:
            self.health = self.care.health()
        return self


class Examiner:
    """Looks at every level when it is due. Owner's thread; looks and trials in I/O threads."""

    def __init__(
        self,
        levels: Sequence[Level],
        *,
        runtime: Runtime,
        orders: Orders,
        cares: Mapping[str, Care],
    ) -> None:
        self._clock = runtime.clock
        self._wall_ms = runtime.wall_ms
        self._observer = runtime.observer
        self._orders = orders
        now_s = runtime.clock()
        self._patients = [_Patient(level, cares.get(level.name), now_s, now_s) for level in levels]

    def poll(self) -> None:
        """Send what is due."""
        now_s = self._clock()
        for patient in self._patients:
            if patient.care is not None and not patient.looking and now_s >= patient.space_due_s:
                self._look(patient, patient.care, now_s)
            trust = patient.level.trust
            if trust.lost or not trust.fenced(Fence.FAULTS):  # nobody knows what a lost one holds
                patient.trial_due_s = now_s + TRIAL_EVERY_S
            elif not patient.trying and now_s >= patient.trial_due_s:
                self._try(patient, now_s)

    def _look(self, patient: _Patient, care: Care, now_s: float) -> None:
        level = patient.level
        look = _Look(care, at_health=now_s >= patient.health_due_s)
        patient.looking = True
        self._orders.send(
            Lane(level.name, Kind.CHECK),
            look.carry_out,
            lambda look: self._looked(patient, look),
            due=Due(until_s=now_s + _LATE_S, late=lambda: level.write_late(self._clock())),
        )

    def _looked(self, patient: _Patient, look: _Look) -> None:
        now_s = self._clock()
        patient.looking = False
        patient.space_due_s = now_s + SPACE_EVERY_S
        patient.space = look.space or patient.space
        if look.error is not None:
            patient.level.write_failed(look.error, now_s)
        if look.health is not None:
            patient.health_due_s = now_s + HEALTH_EVERY_S
            patient.health = look.health
            _judge_health(patient.level, look.health)
        if look.space is not None:
            _judge_space(patient.level, look.space)
        self._tell(patient, now_s)

    def _try(self, patient: _Patient, now_s: float) -> None:
        """Write a block, read it back, erase it; the slot is nobody's meanwhile."""
        level = patient.level
        slots = level.reserve(1)
        patient.trial_due_s = now_s + TRIAL_EVERY_S
        if not slots:
            return
        patient.trying = True
        order = level.orders(slots, [ROOT])[0]
        written_ms = self._wall_ms()

        def tried(works: bool) -> None:
            patient.trying = False
            level.state.abandon(slots)
            if works:
                level.trust.lift(Fence.FAULTS)

        self._orders.send(
            Lane(level.name, Kind.STORE), lambda: _works(level, order, written_ms), tried
        )

    def _tell(self, patient: _Patient, now_s: float) -> None:
        health, budget = patient.health, patient.level.wear.budget
        self._observer(
            Examined(
                tier=patient.level.name,
                used_percent=health.used_percent,
                spare_percent=health.spare_percent,
                media_errors=health.media_errors,
                free_bytes=patient.space.free_bytes if patient.space else None,
                budget_bytes=None if budget.unlimited else budget.left_bytes(now_s),
                written_bytes=budget.written_bytes,
                life_years=budget.life_years(now_s),
            )
        )


def ailments(health: DriveHealth) -> list[str]:
    """Why a drive should not be written any more, in words."""
    found = [words for words in health.warnings if words != _PASSING_WARNING]
    if health.passed is False:
        found.append("the drive says that it is failing")
    if (health.used_percent or 0) >= _WORN_OUT_PERCENT:
        found.append(f"{health.used_percent} % of its life is used up")
    spare, threshold = health.spare_percent, health.spare_threshold_percent
    if spare is not None and threshold is not None and spare < threshold:
        found.append(f"{spare} % spare is left")
    return found


def _judge_health(level: Level, health: DriveHealth) -> None:
    """A drive that says nothing keeps the standing it has."""
    if found := ailments(health):
        level.trust.fence(Fence.HEALTH, Reason.UNHEALTHY, "; ".join(found))
    elif not health.problem:
        level.trust.lift(Fence.HEALTH)


def _judge_space(level: Level, space: Space) -> None:
    if space.free_bytes < space.floor_bytes:
        detail = f"{space.free_bytes} bytes are free, {space.floor_bytes} have to stay so"
        level.trust.fence(Fence.SPACE, Reason.FULL, detail)
    else:
        level.trust.lift(Fence.SPACE)


def _works(level: Level, order: Order, written_ms: int) -> bool:
    """In an I/O thread: whether a block comes back as it was written."""
    size_bytes = min(4096, level.sealed.geometry.slot_bytes)
    payload, back = (memoryview(aligned_buffer(size_bytes))[:size_bytes] for _ in range(2))
    payload[:] = bytes(written_ms % 251 for _ in range(size_bytes))
    block = Block(
        namespace=NamespaceId(bytes(32)),
        key=ROOT,
        parent=ROOT,
        depth=0,
        tokens=0,
        payload=payload,
        created_ms=written_ms,
    )
    seal = block.seal(generation=order.generation)
    try:
        level.sealed.store([order.slot], [seal], [payload])
        outcomes = level.sealed.load([order], [back])
        level.sealed.free([order.slot])
    except TierError:
        return False
    return outcomes == [Hit(level.name)] and back == payload
