"""`pagoda bench tiers`: its flags and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, Group
from rich.table import Table

from pagoda.cli.bench_output import Json, show
from pagoda.cli.bench_tables import figure_table, host_line
from pagoda.lab.bench.tiers import MIB, PAIRS, SHARED_MEMORY, TierSettings, measure_tiers

QUICK_SIZE = 64 * MIB


def tiers(  # noqa: PLR0913  (its flags)
    *,
    only: Annotated[
        list[str] | None, typer.Option(metavar="PART", help="Measure this part; may be repeated.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="On the drive to measure. [default: temporary]")
    ] = None,
    tmpfs: Annotated[Path, typer.Option(help="On a tmpfs, for the ceiling.")] = SHARED_MEMORY,
    lmcache: Annotated[
        Path | None, typer.Option(help="Where pip --target put LMCache. [default: installed]")
    ] = None,
    size: Annotated[int, typer.Option(min=64, help="MiB moved in each pass.")] = 256,
    runs: Annotated[int, typer.Option(min=1, help="Alternations that are counted.")] = PAIRS,
    quick: Annotated[bool, typer.Option(help="See that it works; nothing is judged.")] = False,
    json_to: Json = None,
) -> None:
    """Sealed tiers beside their goals: drive (against fio), host (numpy), ceiling (on tmpfs),
    peers (vLLM's and LMCache's disk caches). Needs fio; takes five minutes."""
    settings = TierSettings(
        directory=directory,
        memory_directory=tmpfs,
        lmcache=lmcache,
        size_bytes=QUICK_SIZE if quick else size * MIB,
        pairs=1 if quick else runs,
    )
    with Console(stderr=True).status("starting") as status:
        report = measure_tiers(settings, status.update, only=only or ())
    show(report, json_to, tables)


def tables(report: dict[str, Any]) -> Group:
    """Every figure beside its goal with its range, and the rates that it was made of."""
    return Group(*_tables(report), host_line(report))


def _tables(report: dict[str, Any]) -> Iterator[Table]:
    for name, part in report["parts"].items():
        yield figure_table(f"{name}, {report['pairs']} pairs", part["figures"])
        if part["rows"]:
            yield _rates(name, part["rows"])


def _rates(name: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{name}: median and range", box=box.SIMPLE_HEAD)
    for column in ("what", "side"):
        table.add_column(column)
    for column in ("GB/s", "CPU s/GB"):
        table.add_column(column, justify="right")
    for row in rows:
        what = f"{row['what']} {row['block_bytes'] // 1024} KiB × {row['depth']}"
        for side, found in row["sides"].items():
            speed, cpu = found["gb_per_s"], found["cpu_s_per_gb"]
            table.add_row(
                what,
                side,
                f"{speed['median']:.2f} [dim]{speed['low']:.2f}–{speed['high']:.2f}[/]",
                f"{cpu['median']:.3f}",
            )
            what = ""
    return table
