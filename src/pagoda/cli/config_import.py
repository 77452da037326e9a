"""`pagoda config import`: another cache's configuration as Pagoda's settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from pagoda.settings.foreign import Fate, Translation, import_file

_STYLES = {Fate.CHANGED: "yellow", Fate.MISSING: "red", Fate.UNKNOWN: "red"}


def import_command(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="LMCache's YAML, or vLLM's kv-transfer-config (JSON)."),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Print the settings that match another cache's configuration, and what became of each key.

    The settings go to standard output, as a settings file; the table of keys to standard error:
    what maps, what has another meaning here, what has no counterpart and why. No key is left
    out, no secret is copied, and nothing is written.
    """
    found = import_file(file)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    Console(stderr=True).print(_table(found))
    typer.echo(f"# From {found.source}'s {file.name}")
    typer.echo(found.toml())


def _table(found: Translation) -> Table:
    columns = (Column(name, overflow="fold") for name in ("key", "value", "", "setting", "note"))
    table = Table(*columns, box=None, pad_edge=False)  # folded: no key is cut short
    for line in found.lines:
        cells = (line.key, line.value, line.fate.value, line.setting, line.note)
        table.add_row(*(cell.replace("[", r"\[") for cell in cells), style=_STYLES.get(line.fate))
    return table
