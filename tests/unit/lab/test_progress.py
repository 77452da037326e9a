"""Progress as lines and as bars."""

from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress

from pagoda.lab.progress import REPEAT_S, Step, bars, lines, terminal


def test_without_a_terminal_a_stage_is_a_line_and_repeats_while_it_lasts():
    """Ten steps within one period write one line; a later one tells share and time."""
    now_s = 0.0
    out = io.StringIO()
    tell = lines(out, clock=lambda: now_s)
    for _ in range(10):
        tell(Step("reading"))
    now_s = REPEAT_S
    tell(Step("reading", 0.5))
    tell(Step("writing"))
    assert out.getvalue() == f"reading\nreading: 50% after {REPEAT_S:.0f} s\nwriting\n"


def test_on_a_terminal_each_stage_is_a_bar_and_the_past_ones_are_full():
    """Stages that gave way are drawn as finished, the last one as far as it got."""
    drawn = Progress(console=Console(file=io.StringIO()))
    tell = bars(drawn)
    tell(Step("reading"))
    tell(Step("writing", 0.25))
    states = [(task.description, task.completed, task.total) for task in drawn.tasks]
    assert states == [("reading", 1.0, 1.0), ("writing", 0.25, 1.0)]


def test_a_stream_that_is_no_terminal_gets_plain_text():
    """Logs hold no escape sequences."""
    out = io.StringIO()
    with terminal(out) as tell:
        tell(Step("reading", 0.1))
    assert out.getvalue() == "reading\n"
