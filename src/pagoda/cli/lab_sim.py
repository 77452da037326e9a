"""`pagoda lab sim`: the real store on fake time and broken media, from a seed."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pagoda.cli.bench_output import STDOUT, Json, emit
from pagoda.lab.progress import Step
from pagoda.lab.progress import lines as told_in_lines
from pagoda.lab.sim.coverage import ELSEWHERE, Coverage
from pagoda.lab.sim.many import Outcome, Plan, run_fallback, run_seed, run_seeds
from pagoda.lab.sim.run import Report


def command(  # noqa: PLR0913  (a command's parameters are its flags)
    *,
    seed: Annotated[int, typer.Option(help="The first seed; one seed is one run, for ever.")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a run.")] = 100_000,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, max=4, help="Nodes of a run.")] = 2,
    jobs: Annotated[int, typer.Option(min=1, help="Seeds to run at a time.")] = 1,
    coverage: Annotated[bool, typer.Option(help="See which lines of core and store ran.")] = True,
    missing: Annotated[bool, typer.Option(help="List the lines that did not run.")] = False,
    json_to: Json = None,
) -> None:
    """Simulate nodes over broken media: every block handed over must have its true bytes.

    Status 1 when a check fails; it is shown with the seed, the last steps and the command that
    does it again.
    """
    plan = Plan(
        seeds=range(seed, seed + seeds), steps=steps, nodes=nodes, coverage=coverage or missing
    )
    began_s = time.monotonic()
    outcomes = _run(plan, jobs)
    lines = _lines(plan, outcomes)
    report = _as_json(plan, outcomes, lines, seconds=time.monotonic() - began_s)
    emit(report, json_to)
    if json_to != STDOUT:
        _show(report, Console())
        if missing and lines is not None:
            _show_missing(lines, Console())
    if report["failed"]:
        raise typer.Exit(1)


def _run(plan: Plan, jobs: int) -> list[Outcome]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    console = Console(stderr=True)
    drawn = console.is_terminal
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not drawn
    ) as progress:
        task = progress.add_task("steps", total=plan.steps * len(plan.seeds))
        if len(plan.seeds) == 1:
            log = told_in_lines(sys.stderr)

            def tell(done: int) -> None:
                progress.update(task, completed=done)
                if not drawn:
                    log(Step(f"seed {plan.seeds[0]}", done / plan.steps))

            return [run_seed(plan, plan.seeds[0], tell)]
        outcomes: list[Outcome] = []
        for outcome in run_seeds(plan, jobs=jobs):
            outcomes.append(outcome)
            if not drawn:
                typer.echo(_one_line(outcome), err=True)
            progress.advance(task, plan.steps)
        return sorted(outcomes, key=lambda outcome: outcome.report.seed)


def _one_line(outcome: Outcome) -> str:
    """How a run ended, for a log."""
    report = outcome.report
    ended = report.failed or "clean"
    return f"seed {report.seed}: {ended}, {report.steps:,} steps, {outcome.seconds:,.0f} s"


def _lines(plan: Plan, outcomes: list[Outcome]) -> Coverage | None:
    """All lines that the runs passed through, and a short one without compiled tables."""
    if not plan.coverage:
        return None
    lines = Coverage()
    for outcome in [*outcomes, run_fallback(plan, plan.seeds[0])]:
        lines.add(outcome.seen)
    return lines


def _as_json(
    plan: Plan, outcomes: list[Outcome], lines: Coverage | None, *, seconds: float
) -> dict[str, Any]:
    reports = [outcome.report for outcome in outcomes]
    return {
        "seeds": list(plan.seeds),
        "nodes": plan.nodes,
        "steps": sum(report.steps for report in reports),
        "seconds": round(seconds, 1),
        "failed": sum(report.failed is not None for report in reports),
        "runs": [_run_as_json(plan, report) for report in reports],
        "coverage": None if lines is None else _coverage_as_json(lines),
    }


def _run_as_json(plan: Plan, report: Report) -> dict[str, Any]:
    """A run; of a failed one, also how to do it again."""
    found = {
        "seed": report.seed,
        "steps": report.steps,
        "digest": report.digest,
        "counts": dict(sorted(report.counts.items())),
    }
    if report.failed is None:
        return found
    again = f"pagoda lab sim --seed {report.seed} --steps {plan.steps} --nodes {plan.nodes}"
    return found | {
        "check": report.failed,
        "detail": report.detail,
        "last_steps": report.last,
        "again": again,
    }


def _coverage_as_json(lines: Coverage) -> dict[str, Any]:
    return {
        "share": round(lines.share(), 4),
        "files": {file.name: round(file.share, 4) for file in lines.files()},
        "not_simulated": ELSEWHERE,
    }


def _show(report: dict[str, Any], console: Console) -> None:
    for run in report["runs"]:
        if "check" in run:
            console.print(f"[red]seed {run['seed']}, step {run['steps']}: {run['check']}[/red]")
            for line in [*run["detail"].splitlines(), "the last steps:", *run["last_steps"]]:
                console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
            console.print(f"  again: {run['again']}", highlight=False, soft_wrap=True)
    console.print(_table(report))
    clean = len(report["runs"]) - report["failed"]
    per_step = report["seconds"] / max(1, report["steps"]) * 1e6
    console.print(
        f"{clean} of {len(report['runs'])} runs clean, {report['steps']:,} steps in "
        f"{report['seconds']:,.0f} s ({per_step:.0f} µs a step)",
        highlight=False,
    )
    if report["coverage"]:
        elsewhere = len({why for why in report["coverage"]["not_simulated"].values()})
        console.print(
            f"lines of core and store that ran: {report['coverage']['share']:.1%} (without "
            f"{elsewhere} kinds of files that are not simulated; --json names them)",
            highlight=False,
        )


def _table(report: dict[str, Any]) -> Table:
    """What happened, over all runs; the digest when there is just one."""
    totals: dict[str, int] = {}
    for run in report["runs"]:
        for name, count in run["counts"].items():
            totals[name] = totals.get(name, 0) + count
    table = Table("what", "count", show_edge=False)
    table.columns[1].justify = "right"
    for name, count in totals.items():
        table.add_row(name, f"{count:,}")
    if len(report["runs"]) == 1:
        table.caption = f"trace {report['runs'][0]['digest']}"
    return table


def _show_missing(lines: Coverage, console: Console) -> None:
    table = Table("file", "ran", "lines that did not run", show_edge=False)
    for file in sorted(lines.files(), key=lambda file: file.share):
        if file.missing():
            table.add_row(file.name, f"{file.share:.0%}", " ".join(map(str, file.missing())))
    console.print(table)
