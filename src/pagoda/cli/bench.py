"""`pagoda bench`: measure a server, the engine or the tiers."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.status import Status

from pagoda.cli import bench_tables
from pagoda.cli.bench_index import index
from pagoda.cli.bench_output import Json, OptionalJson, show
from pagoda.cli.bench_tiers import tiers
from pagoda.cli.main import INTERRUPTED
from pagoda.core.errors import SettingsError
from pagoda.lab.bench.engine.setup import Setup
from pagoda.lab.bench.host import usable_cpus
from pagoda.lab.bench.load import LoadSettings, Profile
from pagoda.lab.bench.serve import Target, measure_server
from pagoda.lab.model import demo_model
from pagoda.lab.progress import terminal
from pagoda.settings.files import read_text

app = typer.Typer(name="bench", no_args_is_help=True)
app.command(cls=OptionalJson)(index)
app.command(cls=OptionalJson)(tiers)


@app.callback()
def bench() -> None:
    """Measure a server, the engine, the tiers or the index."""


def _progress() -> Progress:
    """A bar on a terminal; nothing elsewhere, where Rich would leave an empty line."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _status() -> Status:
    return Console(stderr=True).status("starting")


@app.command(cls=OptionalJson)
def serve(  # noqa: PLR0913  (a command's parameters are its flags)
    url: Annotated[str, typer.Argument(help="The server, e.g. http://127.0.0.1:8000")],
    *,
    profile: Annotated[Profile, typer.Option(help="Shape of the conversations.")] = (
        Profile.MULTI_TURN
    ),
    requests: Annotated[int, typer.Option(help="Requests in all.")] = 40,
    sessions: Annotated[int, typer.Option(help="Conversations of the multi-turn profile.")] = 8,
    concurrency: Annotated[
        int | None, typer.Option(help="Requests in flight at most. [default: 4; 1024 with --rate]")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Open loop: mean requests per second (Poisson arrivals).")
    ] = None,
    think: Annotated[float, typer.Option(help="Mean seconds between answer and question.")] = 0.0,
    words: Annotated[
        int | None, typer.Option(help="Words of the document or opening. [default: 1200 or 150]")
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 64,
    seed: Annotated[int, typer.Option(help="Same seed, same load.")] = 0,
    duration: Annotated[float, typer.Option(help="Seconds after which the run ends.")] = 300.0,
    timeout: Annotated[float, typer.Option(help="Seconds that one request may take.")] = 120.0,
    model: Annotated[
        str | None, typer.Option(help="Model name. [default: the first served]")
    ] = None,
    extra: Annotated[str, typer.Option(help="JSON object merged into every request.")] = "{}",
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the server's key; else PAGODA_API_KEY.")
    ] = None,
    json_to: Json = None,
) -> None:
    """Put a load on any OpenAI-compatible server and report what its users would feel.

    Ctrl-C ends the load early and reports what was measured so far, with status 130.
    """
    settings = LoadSettings(
        profile=profile,
        requests=requests,
        sessions=sessions,
        concurrency=concurrency,
        rate_per_s=rate,
        think_s=think,
        words=words,
        max_tokens=max_tokens,
        seed=seed,
        duration_s=duration,
        timeout_s=timeout,
    )
    target = Target(url=url, model=model, api_key=_api_key(api_key_file), extra=_object(extra))
    with _progress() as progress:
        task = progress.add_task("requests", total=settings.requests)
        found = asyncio.run(measure_server(target, settings, lambda _: progress.advance(task)))
    show(found, json_to, bench_tables.serve_tables)
    if found["interrupted"]:
        raise typer.Exit(INTERRUPTED)
    if not found["requests"]["served"]:
        raise typer.Exit(1)


@app.command(cls=OptionalJson)
def engine(  # noqa: PLR0913  (its flags)
    *,
    model: Annotated[
        Path | None, typer.Option(help="Model directory. [default: the demonstration model]")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="PART", help="Measure this part; may be repeated.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="On the drive to restore from. [default: temporary]")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of both sides. [default: all processors]")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Alternations that are counted.")] = 3,
    quick: Annotated[bool, typer.Option(help="See that it works; nothing is judged.")] = False,
    json_to: Json = None,
) -> None:
    """The engine's figures beside their goals: restore, bitwise, decode, prefill, exact, memory,
    start. Needs pagoda-kv[engine]; takes a quarter of an hour on two processors."""
    if model is None:
        with terminal() as tell:
            model = demo_model(tell)
    setup = Setup(
        model=model,
        directory=directory or Path(tempfile.gettempdir()),
        threads=threads or usable_cpus(),
        runs=runs,
        quick=quick,
    )
    from pagoda.lab.bench.engine.run import measure_engine  # noqa: PLC0415 - brings torch

    with _status() as status:
        found = measure_engine(setup, only or [], status.update)
    show(found, json_to, bench_tables.engine_tables)


def _api_key(file: Path | None) -> str | None:
    """The server's key. Never a flag: every user of a machine can read its processes' flags."""
    if file is None:
        return os.environ.get("PAGODA_API_KEY") or None
    try:
        return read_text(file).strip()
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f"cannot read {file}: {error}", key="api-key-file", source="flag"
        ) from error


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"--extra is not JSON: {error}", key="extra", source="flag") from error
    if not isinstance(value, dict):
        raise SettingsError("--extra is not a JSON object", key="extra", source="flag")
    return value
