"""Progress of long work, told in small facts, so that the work itself knows no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

REPEAT_S = 10.0  # without a terminal, a stage that lasts says so this often


@dataclass(frozen=True, slots=True)
class Step:
    """How far one stage of a work is: `done` in [0, 1], or None when that is unknown."""

    stage: str
    done: float | None = None


Tell = Callable[[Step], None]


def silent(step: Step) -> None:
    """Tell nobody."""
    del step


@contextmanager
def terminal(stream: TextIO | None = None) -> Iterator[Tell]:
    """Tell a person: a bar a stage on a terminal, else a line when a stage begins or lasts.

    `stream` is standard error by default: standard output belongs to the answer.
    """
    out = sys.stderr if stream is None else stream
    if not out.isatty():
        yield lines(out)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=out)) as drawn:
        yield bars(drawn)


def bars(drawn: Progress) -> Tell:
    """A teller that draws one bar a stage and fills it when the next stage begins."""
    task: TaskID | None = None
    stage = ""

    def tell(step: Step) -> None:
        nonlocal task, stage
        if step.stage != stage or task is None:
            if task is not None:
                drawn.update(task, total=1.0, completed=1.0)
                drawn.stop_task(task)
            stage, task = step.stage, drawn.add_task(step.stage, total=None)
        if step.done is not None:
            drawn.update(task, total=1.0, completed=step.done)

    return tell


def lines(out: TextIO, clock: Callable[[], float] = time.monotonic) -> Tell:
    """A teller that writes a line when a stage begins and every REPEAT_S while it lasts."""
    stage = ""
    began_s = told_s = 0.0

    def tell(step: Step) -> None:
        nonlocal stage, began_s, told_s
        now_s = clock()
        if step.stage != stage:
            stage, began_s = step.stage, now_s
            out.write(f"{stage}\n")
        elif now_s - told_s >= REPEAT_S:
            share = "" if step.done is None else f" {step.done:.0%}"
            out.write(f"{stage}:{share} after {now_s - began_s:.0f} s\n")
        else:
            return
        told_s = now_s
        out.flush()

    return tell
