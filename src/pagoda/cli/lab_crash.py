"""`pagoda lab crash`: kill the process and cut the power at every write, and see what is back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pagoda.cli.bench_output import STDOUT, Json, emit
from pagoda.lab.crash.run import CrashSettings, crash
from pagoda.lab.progress import terminal

_BROKEN_PROMISES = ("lost", "wrong", "broken")


def command(  # noqa: PLR0913  (a command's parameters are its flags)
    *,
    seed: Annotated[int, typer.Option(help="One seed, one workload and the same crashes.")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="Steps of the workload.")] = 150,
    kills: Annotated[
        int, typer.Option(min=1, help="Processes killed at most, spread over all points.")
    ] = 400,
    scrambled: Annotated[
        int, typer.Option(min=0, help="Random images a power cut, in pages and in sectors.")
    ] = 2,
    directory: Annotated[
        Path | None, typer.Option(help="Where processes are killed. [default: temporary]")
    ] = None,
    json_to: Json = None,
) -> None:
    """Crash a real store at every write and sync: what was committed must be back, and whole.

    Status 1 when a committed block is lost, another byte is served or the store does not work.
    """
    settings = CrashSettings(
        seed=seed, steps=steps, kills=kills, scrambled=scrambled, directory=directory
    )
    with terminal() as tell:
        report = crash(settings, tell)
    emit(report, json_to)
    if json_to != STDOUT:
        _show(report, Console())
    if not report["kept"]:
        raise typer.Exit(1)


def _show(report: dict[str, Any], console: Console) -> None:
    console.print(
        f"a workload of {report['operations']:,} writes and syncs: {report['kill_points']:,} "
        f"places to kill it, {report['kills']:,} tried; {report['images']:,} images of power cuts "
        f"(seed {report['seed']})",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table(report))
    for row in report["rows"].values():
        for failure in row["failures"]:
            console.print(f"[red]{failure}[/red]", highlight=False, soft_wrap=True)
    console.print("every promise was kept" if report["kept"] else "[red]a promise broke[/red]")


def _table(report: dict[str, Any]) -> Table:
    table = Table("crash", "times", "owed", "back", "refused", show_edge=False)
    for name in _BROKEN_PROMISES:
        table.add_column(name)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in report["rows"].items():
        counts = [f"{row[key]:,}" for key in ("crashes", "owed", "back", "refused")]
        bad = [f"[red]{row[key]:,}[/red]" if row[key] else "0" for key in _BROKEN_PROMISES]
        table.add_row(name, *counts, *bad)
    table.caption = "blocks; refused: damaged, where a newer block was being written over them"
    return table
