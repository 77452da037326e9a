"""`pagoda inspect DIR`: what is in a drive, and whether every byte of it is sound."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from pagoda.store.inspect import DriveInspector, DriveReport

_CORRUPT = 1


def command(
    directory: Annotated[Path, typer.Argument(help="A drive directory, or a slab file.")],
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every payload against its seal.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Show what is in a drive: namespaces, blocks, bytes, ages. Writes nothing.

    Status 1 when a header or, with --verify, a payload is damaged.
    """
    inspector = DriveInspector(directory)
    with Progress(
        console=Console(stderr=True), disable=not (verify and sys.stderr.isatty())
    ) as bar:
        task = bar.add_task("verifying", total=None)
        report = inspector.report(
            verify=verify,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        typer.echo(json.dumps(_as_json(report, verify=verify)))
    else:
        _print(report, verify=verify)
    if report.corrupt or report.damaged_headers:
        raise typer.Exit(_CORRUPT)


def _as_json(report: DriveReport, *, verify: bool) -> dict[str, object]:
    found = asdict(report)
    found["namespaces"] = list(found["namespaces"].values())
    found["blocks"] = report.blocks
    if not verify:
        del found["verified"], found["corrupt"]
    return found


def _print(report: DriveReport, *, verify: bool) -> None:
    console = Console()
    slab_gib = report.slots * report.slot_bytes / 2**30
    console.print(
        f"{report.path}: {report.blocks:,} of {report.slots:,} slots of "
        f"{report.slot_bytes:,} bytes in use ({slab_gib:.2f} GiB in all)",
        highlight=False,
    )
    table = Table("namespace", "blocks", "MB", "tokens", "longest prefix", "oldest", "newest")
    for space in report.namespaces.values():
        table.add_row(
            space.namespace[:16],
            f"{space.blocks:,}",
            f"{space.size_bytes / 1e6:,.1f}",
            f"{space.tokens:,}",
            f"{space.longest_chain:,} blocks",
            _age(space.oldest_ms),
            _age(space.newest_ms),
        )
    if report.namespaces:
        console.print(table)
    if report.damaged_headers:
        console.print(f"damaged headers in slots {_slots(report.damaged_headers)}")
    if verify:
        verdict = f"corrupt in slots {_slots(report.corrupt)}" if report.corrupt else "all sound"
        console.print(f"{report.verified:,} payloads read: {verdict}", highlight=False)


def _slots(slots: list[int], most: int = 20) -> str:
    rest = f" and {len(slots) - most} more" if len(slots) > most else ""
    return ", ".join(map(str, slots[:most])) + rest


def _age(created_ms: int) -> str:
    seconds = max(0.0, time.time() - created_ms / 1000)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit} ago"
    return f"{seconds:.0f} s ago"
