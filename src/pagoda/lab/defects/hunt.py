"""The hunt: each defect is simulated until a check fails; the sound code is the control."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType

from pagoda.lab.defects.catalogue import DEFECTS
from pagoda.lab.defects.patch import Defect, applied, check_fits
from pagoda.lab.pool import as_they_end
from pagoda.lab.sim.failure import Check, Failure
from pagoda.lab.sim.run import Report, Simulation

CONTROL = "(the sound code)"
_PATIENCE_S = 120  # of one run; a defect may make the store turn for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long a defect may hide: seeds one after another, `steps` each."""

    seeds: range
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of a defect. `check` is None when it survived; `steps` counts all seeds up
    to the one that found it."""

    name: str
    seam: str
    check: str | None
    detail: str
    seed: int | None
    steps: int


def hunt(names: Sequence[str], bounds: Bounds, *, jobs: int) -> Iterator[Finding]:
    """Findings as they come in, the control among them. Raises PatchFailed before it begins."""
    for name in names:
        check_fits(named(name))
    return as_they_end(partial(find, bounds=bounds), [CONTROL, *names], jobs=jobs)


def find(name: str, bounds: Bounds) -> Finding:
    """Simulate with one defect until it is found; in this process."""
    if name == CONTROL:
        return _search(name, "", bounds)
    defect = named(name)
    first, count = bounds.seeds.start, len(bounds.seeds) * defect.rare
    patient = replace(bounds, seeds=range(first, first + count))
    with applied(defect):
        return _search(name, defect.seam, patient)


def named(name: str) -> Defect:
    """The defect of that name."""
    return next(defect for defect in DEFECTS if defect.name == name)


def _search(name: str, seam: str, bounds: Bounds) -> Finding:
    steps = 0
    for seed in bounds.seeds:
        report = _simulate(seed, bounds.steps)
        steps += report.steps
        if report.failed is not None:
            first = report.detail.splitlines()[0] if report.detail else ""
            return Finding(
                name=name, seam=seam, check=report.failed, detail=first, seed=seed, steps=steps
            )
    return Finding(name=name, seam=seam, check=None, detail="", seed=None, steps=steps)


def _simulate(seed: int, steps: int) -> Report:
    """One run, ended when it hangs."""

    def hangs(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise Failure(Check.LIVENESS, f"a run of {steps} steps lasts over {_PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(_PATIENCE_S)
    try:
        return Simulation(seed).run(steps)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
