"""`pagoda model`: get the demonstration model, or tell where it lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pagoda.lab.model import demo_model, demo_model_path, is_ready
from pagoda.lab.progress import terminal

app = typer.Typer(help="Get the demonstration model.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


@app.command()
def path(*, as_json: AsJson = False) -> None:
    """Tell where the demonstration model lies, or will lie; status 1 when it is not there yet."""
    directory = demo_model_path()
    ready = is_ready(directory)
    _tell(directory, ready=ready, as_json=as_json)
    if not ready:
        if not as_json:
            typer.echo("not fetched yet: `pagoda model fetch` does it", err=True)
        raise typer.Exit(1)


@app.command()
def fetch(*, as_json: AsJson = False) -> None:
    """Fetch and convert the demonstration model, unless it is there; tell where it lies."""
    with terminal() as tell:
        directory = demo_model(tell)
    _tell(directory, ready=True, as_json=as_json)


def _tell(directory: Path, *, ready: bool, as_json: bool) -> None:
    found = {"path": str(directory), "ready": ready}
    typer.echo(json.dumps(found) if as_json else str(directory))
