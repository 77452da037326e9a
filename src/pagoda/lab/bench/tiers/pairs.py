"""Sides that alternate, and the ratios of their passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pagoda.lab.bench.figures import Figure
from pagoda.lab.bench.stats import Spread

GB = 1e9


def _nothing() -> None:
    """Neither preparation nor check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One pass of one side: bytes, seconds on the clock, and of processor time (all threads)."""

    size_bytes: int
    wall_s: float
    cpu_s: float

    @property
    def gb_per_s(self) -> float:
        return self.size_bytes / GB / self.wall_s

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.size_bytes / GB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Work that is timed in this process, between a preparation and a check that are not."""

    work: Callable[[], object]
    size_bytes: int
    before: Callable[[], object] = _nothing
    after: Callable[[], object] = _nothing

    def __call__(self) -> Moved:
        self.before()
        wall, cpu = time.perf_counter(), time.process_time()
        self.work()
        moved = Moved(
            size_bytes=self.size_bytes,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
        )
        self.after()
        return moved


Passes = dict[str, list[Moved]]


def alternate(sides: Mapping[str, Callable[[], Moved]], pairs: int) -> Passes:
    """Each side `pairs` times, in turn, after one time that is not counted: it gives files their
    first contents. Every second turn runs backwards, so that no side always finds the caches
    as the same other one left them."""
    passes: Passes = {name: [] for name in sides}
    for turn in range(pairs + 1):
        names = list(sides) if turn % 2 else list(sides)[::-1]
        for name in names:
            moved = sides[name]()
            if turn:
                passes[name].append(moved)
    return passes


def rates(passes: Sequence[Moved]) -> Spread:
    """GB/s (10⁹)."""
    return Spread.of(moved.gb_per_s for moved in passes)


def speed_ratio(ours: Sequence[Moved], theirs: Sequence[Moved]) -> Spread:
    """How many times as fast, pair by pair."""
    return Spread.of(a.gb_per_s / b.gb_per_s for a, b in zip(ours, theirs, strict=True))


def added_cpu(ours: Sequence[Moved], theirs: Sequence[Moved]) -> Spread:
    """Processor seconds a GB that the first side takes more, pair by pair."""
    return Spread.of(a.cpu_s_per_gb - b.cpu_s_per_gb for a, b in zip(ours, theirs, strict=True))


def row(passes: Passes, **what: Any) -> dict[str, Any]:
    """One line of the report: what was moved, and each side's rate and processor time."""
    sides = {
        name: {
            "gb_per_s": asdict(rates(moved)),
            "cpu_s_per_gb": asdict(Spread.of(one.cpu_s_per_gb for one in moved)),
        }
        for name, moved in passes.items()
    }
    return what | {"sides": sides}


def at_least(name: str, found: Spread, goal: float, *, judged: bool) -> Figure:
    """A ratio that should not be below its goal."""
    return Figure(
        name=name,
        value=found.median,
        unit="×",
        goal=f"≥ {goal:g}",
        met=found.median >= goal if judged else None,
        detail=asdict(found),
    )


def at_most(name: str, found: Spread, goal: float, unit: str, *, judged: bool) -> Figure:
    """A cost that should not be above its goal."""
    return Figure(
        name=name,
        value=found.median,
        unit=unit,
        goal=f"≤ {goal:g}",
        met=found.median <= goal if judged else None,
        detail=asdict(found),
    )


def not_measured(name: str, goal: str, why: str) -> Figure:
    """A figure that this machine cannot give, and why."""
    return Figure(
        name=name, value="not measured", unit="", goal=goal, met=None, detail={"why": why}
    )
