"""Many replays of one trace: every policy at every size, in copies of this process.

The trace is read once and never sent: a copy has what the process had. Each replay is a work of
its own, so that its figures do not depend on how many run at a time.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pagoda.core.trace import Trace
from pagoda.lab.pool import as_forks_end

Figures = TypeVar("Figures")
Figures_co = TypeVar("Figures_co", covariant=True)
_STRIDE = 64  # requests between two notes of how far a replay is
Note = Callable[[], None]  # one more request is done
Tell = Callable[[float], None]  # the share of all work that is done


class Cell(Protocol[Figures_co]):
    """One replay: policies over tiers of some size."""

    def replay(self, trace: Trace, note: Note) -> Figures_co:
        """Replay the trace from its start; `note` after each request."""
        ...


@dataclass(frozen=True, slots=True)
class Replayed(Generic[Figures]):
    """What came of a cell, and the seconds of one processor that it took."""

    figures: Figures
    seconds: float


def sweep(
    trace: Trace, cells: Sequence[Cell[Figures]], *, jobs: int, tell: Tell
) -> list[Replayed[Figures]]:
    """Replay every cell, `jobs` at a time; what came of each, in the order of the cells."""
    runs = _Runs(trace, cells)
    ended = as_forks_end(
        runs, range(len(cells)), jobs=min(jobs, len(cells)), tick=lambda: tell(runs.share())
    )
    found = dict(ended)
    tell(1.0)
    return [found[index] for index in range(len(cells))]


class _Runs(Generic[Figures]):
    """The work, and how many requests of each cell are done: memory that the copies share."""

    def __init__(self, trace: Trace, cells: Sequence[Cell[Figures]]) -> None:
        self._trace = trace
        self._cells = cells
        self._done = multiprocessing.RawArray("q", len(cells))

    def share(self) -> float:
        done: int = sum(self._done)
        return done / (len(self._cells) * len(self._trace.requests))

    def __call__(self, index: int) -> tuple[int, Replayed[Figures]]:
        done = 0

        def note() -> None:
            nonlocal done
            done += 1
            if done % _STRIDE == 0:
                self._done[index] = done

        began_s = time.process_time()
        figures = self._cells[index].replay(self._trace, note)
        seconds = time.process_time() - began_s
        self._done[index] = len(self._trace.requests)
        return index, Replayed(figures, seconds)
