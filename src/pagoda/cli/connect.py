"""`pagoda connect`: does the connector fit the engine that is installed?"""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pagoda.connect.guard import Fit, Verdict, examine, examine_elsewhere
from pagoda.connect.surfaces import SURFACES
from pagoda.core.errors import SettingsError

app = typer.Typer(help="Plug Pagoda into another engine.", no_args_is_help=True)

EngineName = StrEnum("EngineName", {name.upper(): name for name in SURFACES})  # type: ignore[misc]


@app.callback()
def connect() -> None:
    """Plug Pagoda into another engine."""


@app.command()
def check(
    engine: Annotated[EngineName, typer.Argument(help="The engine.")],
    *,
    python: Annotated[
        Path | None, typer.Option(help="The engine's interpreter, if it is not this one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Say whether the connector fits the installed engine, before that starts; status 1 when it
    does not."""
    surface = SURFACES[str(engine)]
    try:
        verdict = examine(surface) if python is None else examine_elsewhere(surface, python)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"cannot ask {python}: {error}",
            key="--python",
            source="command line",
            remedy="name a Python interpreter, such as that of the engine's virtual environment",
        ) from error
    typer.echo(json.dumps(asdict(verdict) | {"fits": verdict.fits}) if as_json else _words(verdict))
    raise typer.Exit(0 if verdict.fits else 1)


def _words(verdict: Verdict) -> str:
    name = f"{verdict.package} {verdict.version}".strip()
    tested = ", ".join(verdict.tested)
    match verdict.fit:
        case Fit.TESTED:
            return f"{name}: fits; the tests ran on this version"
        case Fit.UNTESTED:
            return f"{name}: fits, as far as signatures tell; the tests ran on {tested}"
        case Fit.ABSENT:
            return (
                f"{name}: not installed for this interpreter; the tests ran on {tested}\n"
                "  install Pagoda beside it, or name its interpreter with --python"
            )
        case _:
            changes = "\n".join(f"  {change}" for change in verdict.changes)
            return f"{name}: does not fit; the tests ran on {tested}\n{changes}"
