"""`pagoda config import`: another cache's configuration as Pagoda's settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from pagoda.settings.foreign import Fate, Line, Translation, import_file

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

    The settings go to standard output, as a file for `pagoda serve --config`; the keys to standard
    error: what maps, what has another meaning here, what has no counterpart and why. No key is left
    out, no secret is copied, and nothing is written.
    """
    found = import_file(file)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    Console(stderr=True, highlight=False).print(_keys(found), crop=False)
    typer.echo(f"# Settings of `pagoda serve` (--config FILE), from {found.source}'s {file.name}")
    typer.echo(found.toml())


def _keys(found: Translation) -> Group:
    """A paragraph a key. Its name, its value and its setting are never broken into lines: people
    search for them."""
    parts: list[Text | Padding] = []
    for line in found.lines:
        style = _STYLES.get(line.fate, "")
        parts.append(
            Text(f"{line.key} = {line.value}", style=style, no_wrap=True, overflow="ignore")
        )
        parts.append(Padding(Text(_fate(line), style=style), (0, 0, 0, 4)))
    return Group(*parts)


def _fate(line: Line) -> str:
    """What becomes of a key: "maps to host.capacity: of the whole node"."""
    if not line.setting:
        return f"{line.fate.value}: {line.note}" if line.note else line.fate.value
    said = f"{line.fate.value}: {line.setting}"
    return f"{said}; {line.note}" if line.note else said
