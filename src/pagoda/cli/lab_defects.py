"""`pagoda lab defects`: mistakes put into the real code, which the simulation must find."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pagoda.cli.bench_output import STDOUT, Json, emit
from pagoda.core.errors import SettingsError
from pagoda.lab.defects.catalogue import DEFECTS
from pagoda.lab.defects.hunt import CONTROL, Bounds, Finding, hunt


def command(
    *,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Just this defect; may be repeated.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds that a defect has to survive.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each seed.")] = 20_000,
    jobs: Annotated[int, typer.Option(min=1, help="Defects to hunt at a time.")] = 1,
    json_to: Json = None,
) -> None:
    """Put one defect after another into the code, and simulate until a check finds it.

    Status 1 when a defect survives, when the sound code fails the same runs, or when a patch no
    longer fits the code.
    """
    names = _names(only)
    findings = _hunt(names, Bounds(seeds=range(1, seeds + 1), steps=steps), jobs)
    report = _as_json(findings)
    emit(report, json_to)
    if json_to != STDOUT:
        _show(report, Console())
    if report["survived"] or report["control"]["check"]:
        raise typer.Exit(1)


def _names(only: list[str] | None) -> list[str]:
    known = [defect.name for defect in DEFECTS]
    for name in only or []:
        if name not in known:
            raise SettingsError(
                f"there is no defect {name!r}",
                key="only",
                source="flag",
                remedy=f"one of: {', '.join(known)}",
            )
    return only or known


def _hunt(names: list[str], bounds: Bounds, jobs: int) -> list[Finding]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    found: dict[str, Finding] = {}
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("defects", total=len(names) + 1)
        for finding in hunt(names, bounds, jobs=jobs):
            found[finding.name] = finding
            progress.advance(task)
            if not console.is_terminal:
                typer.echo(_one_line(finding), err=True)
    return [found[name] for name in [CONTROL, *names]]


def _one_line(finding: Finding) -> str:
    """What became of a defect, for a log."""
    missed = "clean" if finding.name == CONTROL else "survived"
    return f"{finding.name}: {finding.check or missed}"


def _as_json(findings: list[Finding]) -> dict[str, Any]:
    control, *rest = findings
    stories = {defect.name: defect.story for defect in DEFECTS}
    return {
        "defects": len(rest),
        "survived": [finding.name for finding in rest if finding.check is None],
        "functions": len({finding.seam for finding in rest}),
        "checks": sorted({finding.check for finding in rest if finding.check}),
        "control": _finding(control),
        "findings": [_finding(finding) | {"story": stories[finding.name]} for finding in rest],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "seam": finding.seam,
        "check": finding.check,
        "detail": finding.detail,
        "seed": finding.seed,
        "steps": finding.steps,
    }


def _show(report: dict[str, Any], console: Console) -> None:
    table = Table("defect", "in", "found by", "steps", show_edge=False)
    table.columns[3].justify = "right"
    for row in report["findings"]:
        found = row["check"] or "[red]SURVIVED[/red]"
        table.add_row(row["name"], row["seam"].partition(":")[2], found, f"{row['steps']:,}")
    console.print(table)
    control = report["control"]
    if control["check"]:
        console.print(f"[red]the sound code fails, too: {control['check']}[/red]")
        console.print(f"  {control['detail']}", highlight=False, markup=False)
    else:
        console.print(f"the sound code: clean after {control['steps']:,} steps", highlight=False)
    console.print(
        f"{report['defects'] - len(report['survived'])} of {report['defects']} defects in "
        f"{report['functions']} functions found, by {len(report['checks'])} checks",
        highlight=False,
    )
