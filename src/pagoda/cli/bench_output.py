"""Where a bench's report goes: tables for people, JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group

from pagoda.core.errors import SettingsError
from pagoda.lab.picture import require_pictures

STDOUT = "-"
PICTURES = (".png", ".svg")


class OptionalJson(typer.core.TyperCommand):
    """A command whose `--json` may stand without a file: it then writes to standard output."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return list(super().parse_args(ctx, name_stdout(args)))


def name_stdout(args: list[str]) -> list[str]:
    """`args` with "-" after each `--json` that no file name follows (a URL is not one)."""
    named: list[str] = []
    for index, arg in enumerate(args):
        named.append(arg)
        following = args[index + 1] if index + 1 < len(args) else "--"
        is_file = following == STDOUT or not (following.startswith("-") or "://" in following)
        if arg == "--json" and not is_file:
            named.append(STDOUT)
    return named


def writable(path: Path) -> None:
    """Raises SettingsError for a file that cannot be written: before the work, not after it."""
    there = path if path.exists() else path.parent
    if path.is_dir() or not there.exists() or not os.access(there, os.W_OK):
        raise SettingsError(
            f"cannot write {path}",
            key="file",
            source="flag",
            remedy="name a file in a directory that is there and can be written to",
        )


def _json_target(target: str | None) -> str | None:
    if target is not None and target != STDOUT:
        writable(Path(target))
    return target


def _drawable(path: Path | None) -> Path | None:
    if path is not None:
        writable(path)
        if path.suffix.lower() not in PICTURES:
            raise SettingsError(
                f"{path} is named as no picture",
                key="plot",
                source="flag",
                remedy=f"let the name end in {' or '.join(PICTURES)}",
            )
        require_pictures()
    return path


Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="[FILE]",
        help="Write JSON to FILE, or to standard output.",
        callback=_json_target,
    ),
]
Plot = Annotated[Path | None, typer.Option(help="Draw it: a PNG or SVG file.", callback=_drawable)]


def emit(report: dict[str, Any], target: str | None) -> None:
    """Write a report where `--json` says. Raises SettingsError when FILE cannot be written."""
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    if target == STDOUT:
        sys.stdout.write(text)
    elif target is not None:
        try:
            Path(target).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SettingsError(
                f"cannot write {target}: {error.strerror}", key="json", source="flag"
            ) from error


def show(
    report: dict[str, Any], target: str | None, tables: Callable[[dict[str, Any]], Group]
) -> None:
    """Tables for people, unless standard output is for a machine; then the JSON."""
    if target != STDOUT:
        Console().print(tables(report))
    emit(report, target)
