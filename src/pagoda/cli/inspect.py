"""`pagoda inspect`: what is in a drive, and whether every byte of it is sound."""

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

from pagoda.core.errors import SettingsError
from pagoda.settings import load
from pagoda.store.inspect import DriveInspector, DriveReport, drives_in

_CORRUPT = 1


def command(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...",
            help="Drive directories, directories of such, or slab files. [default: drive.path]",
        ),
    ] = None,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every payload against its seal.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one line a drive.")] = False,
) -> None:
    """Show what is in drives: namespaces, blocks, bytes, ages. Writes nothing.

    Needs no key: encrypted blocks are verified as they are stored. Status 1 when a header or,
    with --verify, a payload is damaged.
    """
    paths = [drive for path in directories or _of_settings() for drive in drives_in(path)]
    damaged = False
    for path in paths:
        report = _inspect(DriveInspector(path), verify=verify)
        damaged |= bool(report.corrupt or report.damaged_headers)
        if as_json:
            typer.echo(json.dumps(_as_json(report, verify=verify)))
        else:
            _print(report, verify=verify)
    if damaged:
        raise typer.Exit(_CORRUPT)


def _of_settings() -> tuple[Path, ...]:
    """The drives of this machine's settings. Raises SettingsError when it has none."""
    resolved = load()
    directories = resolved.settings.drive.directories()
    if not directories:
        raise SettingsError(
            "drive.path is off: there is no drive to look into",
            key="drive.path",
            source=str(resolved.origins["drive.path"]),
            remedy="name a drive directory: pagoda inspect DIR",
        )
    return directories


def _inspect(inspector: DriveInspector, *, verify: bool) -> DriveReport:
    quiet = not (verify and sys.stderr.isatty())
    with Progress(console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task("verifying", total=None)
        return inspector.report(
            verify=verify,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


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
    if encryption := _encryption(report):
        console.print(encryption, highlight=False)
    if report.damaged_headers:
        console.print(f"damaged headers in slots {_slots(report.damaged_headers)}")
    if verify:
        verdict = f"corrupt in slots {_slots(report.corrupt)}" if report.corrupt else "all sound"
        console.print(f"{report.verified:,} payloads read: {verdict}", highlight=False)


def _encryption(report: DriveReport) -> str | None:
    spaces = report.namespaces.values()
    encrypted = sum(space.encrypted for space in spaces)
    keys = {key_id for space in spaces for key_id in space.key_ids}
    if not encrypted:
        return None
    what = "key" if len(keys) == 1 else "keys"
    return f"{encrypted:,} blocks are encrypted, with {what} {', '.join(map(str, sorted(keys)))}"


def _slots(slots: list[int], most: int = 20) -> str:
    rest = f" and {len(slots) - most} more" if len(slots) > most else ""
    return ", ".join(map(str, slots[:most])) + rest


def _age(created_ms: int) -> str:
    seconds = max(0.0, time.time() - created_ms / 1000)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit} ago"
    return f"{seconds:.0f} s ago"
