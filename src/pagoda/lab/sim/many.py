"""Many seeds, each in a process of its own, some at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from pagoda.core import native
from pagoda.lab.pool import as_they_end
from pagoda.lab.sim.coverage import Coverage
from pagoda.lab.sim.run import Report, Simulation

_WATCHED_STEPS = 30_000  # from the start of a run
_WATCHED_OF = 12  # later, one stretch of so many
FALLBACK_STEPS = 12_000  # of a short run without the compiled tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    seeds: Sequence[int]
    steps: int
    nodes: int = 2
    coverage: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run's report, the lines that it passed through, and how long it took."""

    report: Report
    seen: dict[str, list[int]]
    seconds: float


Tell = Callable[[int], None]  # steps done


def run_seed(plan: Plan, seed: int, tell: Tell = lambda _: None) -> Outcome:
    """One run in this process."""
    began_s = time.monotonic()
    coverage = Coverage() if plan.coverage else None
    with coverage.watching() if coverage else nullcontext():
        simulation = Simulation(seed, nodes=plan.nodes)
    stretch = 0
    while simulation.steps < plan.steps and simulation.report.failed is None:
        stretch += 1
        watched = simulation.steps < _WATCHED_STEPS or stretch % _WATCHED_OF == 0
        if coverage is not None and watched:
            with coverage.watching():
                simulation.stretch(plan.steps)
        else:
            simulation.stretch(plan.steps)
        tell(simulation.steps)
    seen = coverage.seen() if coverage else {}
    return Outcome(simulation.finish(), seen, time.monotonic() - began_s)


def run_fallback(plan: Plan, seed: int) -> Outcome:
    """A short run on the tables in Python that stand in where nothing could be compiled."""
    compiled, native.TABLES = native.TABLES, None
    try:
        steps = min(plan.steps, FALLBACK_STEPS)
        return run_seed(Plan(seeds=(seed,), steps=steps, nodes=plan.nodes), seed)
    finally:
        native.TABLES = compiled


def run_seeds(plan: Plan, *, jobs: int) -> Iterator[Outcome]:
    """Runs of all seeds as they end, `jobs` at a time; see `as_they_end`."""
    return as_they_end(partial(run_seed, plan), plan.seeds, jobs=jobs)
