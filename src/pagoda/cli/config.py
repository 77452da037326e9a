"""`pagoda config`: each setting, its value and where it came from."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from pagoda.cli.config_import import import_command
from pagoda.cli.flags import takes_settings
from pagoda.settings import Rank, Resolved, Settings, load_file
from pagoda.settings.keys import Key, all_keys

SECTIONS = tuple(dict.fromkeys(key.section for key in all_keys()))


def _check(file: Path | None) -> None:
    """Judge one file by itself: what this machine's environment says is no part of it."""
    if file is None:
        return
    resolved = load_file(file)
    count = sum(origin.rank is Rank.FILE for origin in resolved.origins.values())
    typer.echo(f"{file}: {count} settings, all valid")
    raise typer.Exit


@takes_settings(*SECTIONS)
def _show(
    resolved: Resolved,
    *,
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="FILE",
            callback=_check,
            is_eager=True,
            help="Check FILE by itself and leave: status 0 when all of it is valid, else 2.",
        ),
    ] = None,
) -> None:
    """Show each setting, its value and where it came from.

    The flags are those of `pagoda serve`: put them here to see what they would do. Values for
    pagoda.toml are written the same way, below the section's name in brackets. An empty
    drive.path is shown as the directories that it stands for.
    """
    del check, ctx  # the file is judged before anything else is read
    if as_json:
        typer.echo(json.dumps(rows_json(resolved), indent=2))
    elif sys.stdout.isatty():
        Console().print(_table(resolved))
    else:
        for key, value, origin in resolved.rows():
            typer.echo(f"{key.name}\t{_shown(key, value, resolved.settings)}\t{origin}")


@functools.wraps(_show)
def _unless_import(**given: Any) -> None:
    """Shows the settings, unless a command of the group was called: that reads none of them."""
    if given["ctx"].invoked_subcommand is None:
        _show(**given)


app = typer.Typer()
app.callback(invoke_without_command=True)(_unless_import)
app.command("import")(import_command)


def _shown(key: Key, value: object, settings: Settings) -> str:
    """A value for people. An empty drive.path shows where slabs then lie: one directory for
    each size of block."""
    if key.name == "drive.path" and not value:
        return ",".join(str(place / "blocks-of-*") for place in settings.drive.directories())
    return key.format(value)


def rows_json(resolved: Resolved) -> list[dict[str, object]]:
    """Each setting as {key, value (bytes, seconds, …), text (as written), source}; secrets are
    masked in both."""
    return [
        {
            "key": key.name,
            "value": key.format(value) if isinstance(value, SecretStr) else value,
            "text": key.format(value),
            "source": str(origin),
        }
        for key, value, origin in resolved.rows()
    ]


def _table(resolved: Resolved) -> Table:
    table = Table("setting", "value", "source", box=None, pad_edge=False)
    for key, value, origin in resolved.rows():
        style = "dim" if origin.rank is Rank.DEFAULT else ""
        shown = _shown(key, value, resolved.settings)
        table.add_row(key.name, shown, str(origin), style=style)
    return table
