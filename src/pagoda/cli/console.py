"""Standard output: for people as wide as a terminal is, and without end where there is none; for
programs JSON in a line."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console

_ENDLESS = 10_000  # characters; tables are no wider than what is in them


def output(*, wide: bool = False) -> Console:
    """A console whose tables fit the terminal. When another program reads it, or `wide` is asked
    for, nothing is cut or folded."""
    console = Console()
    return console if console.is_terminal and not wide else Console(width=_ENDLESS)


def print_json(answer: dict[str, Any]) -> None:
    """An answer for another program."""
    typer.echo(json.dumps(answer))
