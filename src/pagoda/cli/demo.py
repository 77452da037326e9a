"""`pagoda demo`: see an answer come from sealed KV that survived a restart."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from pagoda.core.errors import PagodaError
from pagoda.lab.demo import QUESTION, Report, run_demo
from pagoda.lab.model import demo_model
from pagoda.lab.progress import terminal


def command(
    *,
    model: Annotated[
        Path | None, typer.Option(help="A model directory; default: the demonstration model.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here, too.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the byte that is flipped; default: random.")
    ] = None,
) -> None:
    """Show an answer computed, restored after a restart, and recomputed around a flipped byte.

    Starts three servers, one after another, on a free loopback port, over one temporary slab.
    Status 1 when an answer differs or nothing was restored.
    """
    console = Console()
    given = model
    if model is None:
        with terminal() as tell:
            model = demo_model(tell)
    with console.status("starting …") as status:

        def say(line: str) -> None:
            console.print(f"  {line}", highlight=False, soft_wrap=True)
            status.update(line)

        report = run_demo(model, say=say, seed=seed)
    console.print(Panel(report.computed.text.strip(), title=QUESTION, width=78))
    console.print(table(report))
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    _judge(report)
    console.print(f"Next: {next_step(given)}", highlight=False, soft_wrap=True)


def next_step(model: Path | None) -> str:
    """What to type to talk to the model (None: the demonstration's), from this directory."""
    beside = Path(sys.executable).with_name("pagoda")
    pagoda = "pagoda" if shutil.which("pagoda") else shlex.quote(os.path.relpath(beside))
    path = f'"$({pagoda} model path)"' if model is None else shlex.quote(str(model))
    return f"{pagoda} serve --model {path}\n      and, in another terminal: {pagoda} chat"


def table(report: Report) -> Table:
    """The three acts beside each other; fits 80 columns."""
    shown = Table(title="The same question, asked of three processes", show_lines=False)
    shown.add_column("", no_wrap=True)
    for column in ("process", "first token", "from cache", "quarantined"):
        shown.add_column(column, justify="right", no_wrap=True)
    shown.add_column("answer", no_wrap=True)
    acts = {
        "computed": report.computed,
        "restored": report.restored,
        "byte flipped": report.corrupted,
    }
    for name, answer in acts.items():
        same = "same" if answer.text == report.computed.text else "DIFFERS"
        shown.add_row(
            name,
            str(answer.pid),
            f"{answer.ttft_s * 1000:,.0f} ms",
            f"{answer.tokens_cached} of {answer.prompt_tokens}",
            str(answer.blocks_quarantined),
            "—" if answer is report.computed else same,
        )
    shown.caption = f"speed-up: {report.speed_up:.1f} ×"
    return shown


def _judge(report: Report) -> None:
    """A demonstration that does not show what it promises has failed."""
    faults = []
    if report.restored.text != report.computed.text:
        faults.append("the restored answer differs")
    if report.corrupted.text != report.computed.text:
        faults.append("the answer after the flipped byte differs")
    if report.restored.tokens_cached == 0:
        faults.append("nothing was restored")
    if report.corrupted.blocks_quarantined != 1:
        faults.append(f"{report.corrupted.blocks_quarantined} blocks were quarantined, not one")
    if faults:
        raise PagodaError("; ".join(faults))
