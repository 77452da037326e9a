"""`pagoda lab incident`: its flags, its tables and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table

from pagoda.cli.bench_output import Json, Plot, show
from pagoda.cli.bench_tables import figure_table, host_line
from pagoda.lab.incident.run import RATE_PER_S, IncidentSettings, measure_incident


def command(
    *,
    rate: Annotated[float, typer.Option(min=1, help="Requests a second.")] = RATE_PER_S,
    seconds: Annotated[float, typer.Option(min=1, help="Length of the peak.")] = 10.0,
    directory: Annotated[
        Path | None, typer.Option(help="A directory on a drive, for a third tier.")
    ] = None,
    plot: Plot = None,
    json_to: Json = None,
) -> None:
    """Live through the incident three times: sound, with one wrong line in a cache without seals,
    and with the same line in Pagoda. Ends with status 1 when wrong bytes were served by Pagoda.
    A peak of a few seconds may be over before the cache without seals meets its mistake."""
    settings = IncidentSettings(
        rate_per_s=rate, peak_s=seconds, saturated_s=seconds / 2, directory=directory
    )
    with Console(stderr=True).status("starting") as status:
        report = measure_incident(settings, status.update)
    show(report, json_to, tables)
    if plot is not None:
        from pagoda.lab.incident.picture import draw  # noqa: PLC0415 - brings matplotlib

        draw(report, plot)
    if wrong_blocks(report):
        raise typer.Exit(1)


def wrong_blocks(report: dict[str, Any]) -> int:
    """How many wrong blocks Pagoda served, with the mistake and without it."""
    loads = [
        report["runs"][run][loop] for run in ("sound", "defect") for loop in ("open", "closed")
    ]
    return sum(load["wrong_blocks"] for load in loads)


def tables(report: dict[str, Any]) -> Group:
    """What each run's users felt, and the figures beside their goals."""
    runs = Table(title=f"{report['rate_per_s']:,.0f} requests a second, then as many as possible")
    for name in ("run", "in time", "p50 ms", "p99 ms", "most /s", "wrong", "refused", "late p99"):
        runs.add_column(name, justify="left" if name == "run" else "right", overflow="fold")
    for run in report["runs"].values():
        load, closed = run["open"], run["closed"]
        runs.add_row(
            run["title"],
            f"{load['in_time_share']:.1%}",
            _ms(load["wait_s"], "p50"),
            _ms(load["wait_s"], "p99"),
            f"{closed['answered_per_s']:,.0f}",
            f"{load['wrong_blocks'] + closed['wrong_blocks']:,}",
            f"{load['refused_blocks'] + closed['refused_blocks']:,}",
            _ms(load["generator_late_s"], "p99"),
        )
    return Group(runs, figure_table("the incident", report["figures"]), host_line(report))


def _ms(shape: dict[str, float] | None, name: str) -> str:
    return f"{shape[name] * 1e3:,.1f}" if shape else "–"
