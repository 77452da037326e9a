"""`pagoda bench index`: its flags, its table and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table

from pagoda.cli.bench_output import Json, Plot, show
from pagoda.cli.bench_tables import figure_table, host_line
from pagoda.lab.bench.index import SIZES, IndexSettings, measure_index

QUICK_SIZES = (10_000, 100_000)


def index(
    *,
    directory: Annotated[
        Path | None, typer.Option(help="Where the sparse slab goes. [default: temporary]")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Alternations that are counted.")] = 9,
    quick: Annotated[bool, typer.Option(help="Small sizes, to see that it works.")] = False,
    plot: Plot = None,
    json_to: Json = None,
) -> None:
    """Look-ups, memory, growth and restart of the index, beside a bare dictionary. Takes half
    a minute and 2 GB of memory."""
    settings = IndexSettings(
        directory=directory, sizes=QUICK_SIZES if quick else SIZES, runs=1 if quick else runs
    )
    with Console(stderr=True).status("starting") as status:
        report = measure_index(settings, status.update)
    show(report, json_to, tables)
    if plot is not None:
        from pagoda.lab.bench.index_plot import draw  # noqa: PLC0415 - brings matplotlib

        draw(report, plot)


def tables(report: dict[str, Any]) -> Group:
    """Every figure beside its goal, and one row a size."""
    sizes = Table(title="look-up and lease of 64 blocks")
    for name in ("blocks", "table /s", "dict /s", "p99 µs", "bytes", "dict bytes"):
        sizes.add_column(name, justify="right")
    for row in report["rows"]:
        sizes.add_row(
            f"{row['blocks']:,}",
            f"{row['per_s']['table']['median']:,.0f}",
            f"{row['per_s']['dict']['median']:,.0f}",
            f"{row['latency_s']['table']['p99'] * 1e6:.1f}",
            f"{row['table_bytes_a_block']:.0f}",
            f"{row['dict_bytes_a_block']:.0f}",
        )
    return Group(figure_table("index", report["figures"]), sizes, host_line(report))
