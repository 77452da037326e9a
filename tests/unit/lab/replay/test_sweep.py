"""Sweeps: figures in the order that was asked for, whatever ran when."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from replay_sample import write_sample
from trace_lines import SIZE

from pagoda.core.policy import Lru
from pagoda.core.trace import Trace
from pagoda.lab.replay.cells import OneTierCell
from pagoda.lab.replay.files import read_trace
from pagoda.lab.replay.one_tier import OneTier
from pagoda.lab.replay.sweep import Note, sweep


@dataclass(frozen=True)
class Slow:
    """A replay that takes the longer the sooner it is asked for, and may fail."""

    number: int
    fails: bool = False

    def replay(self, trace: Trace, note: Note) -> int:
        time.sleep(0.4 / (1 + self.number))
        for _ in trace.requests:
            note()
        if self.fails:
            raise ValueError(f"cell {self.number}")
        return self.number


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """A small trace."""
    return read_trace(write_sample(tmp_path / "sample.runs"), block_tokens=SIZE).trace


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_figures_come_in_the_order_of_the_cells(trace: Trace, jobs: int) -> None:
    """Although later ones end first; the share that is told never falls, and ends at all."""
    told: list[float] = []
    found = sweep(trace, [Slow(n) for n in range(5)], jobs=jobs, tell=told.append)
    assert [one.figures for one in found] == list(range(5))
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_what_a_replay_raises_comes_through(trace: Trace) -> None:
    """As it was raised; the others are ended."""
    with pytest.raises(ValueError, match="cell 1"):
        sweep(trace, [Slow(0), Slow(1, fails=True)], jobs=2, tell=lambda _: None)


@pytest.mark.parametrize("blocks", [1, 7, 60, 10**12])
def test_a_cell_is_the_replay_of_one_tier(trace: Trace, blocks: int) -> None:
    """The same figures as the simulator's in this process, also for a tier that no machine has
    the memory to make a table for."""
    (found,) = sweep(trace, [OneTierCell("lru", blocks)], jobs=1, tell=lambda _: None)
    slots = min(blocks, 10**4)  # more than the trace has
    tier = OneTier(Lru(slots), capacity=slots, block_tokens=SIZE)
    for _ in tier.run(trace.requests):
        pass
    assert found.figures == tier.hits
    assert found.seconds > 0
