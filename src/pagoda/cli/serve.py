"""`pagoda serve`: a model behind the OpenAI API."""

from __future__ import annotations

import json
import logging
import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry
from rich.console import Console

from pagoda.cli.flags import takes_settings
from pagoda.core.errors import SettingsError
from pagoda.serve.config import ServeConfig
from pagoda.serve.record import Recorder
from pagoda.settings import Resolved, Settings
from pagoda.watch import logs
from pagoda.watch.metrics import Metrics

_log = logging.getLogger("pagoda.serve")


@takes_settings(
    "model", "engine", "host", "drive", "remote", "store", "check", "pins", "server", "log"
)
def command(
    resolved: Resolved,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Tell of readiness as JSON: url, model, pid.")
    ] = False,
) -> None:
    """Serve a model over the OpenAI API.

    Ctrl-C or SIGTERM ends it: no new requests, running answers end, pending blocks are written.
    The API key comes from PAGODA_SERVER_API_KEY, a settings file or --server-api-key-file.
    """
    settings = resolved.settings
    require_model(resolved)
    config = serve_config(settings)
    secrets = (config.api_key or "", settings.remote.password.get_secret_value())
    logs.configure(settings.log.level, settings.log.format, secrets=secrets)
    registry = CollectorRegistry()
    metrics = Metrics(registry)

    from pagoda.serve.server import bind, run_server  # noqa: PLC0415

    with ExitStack() as held:
        address = held.enter_context(closing(bind(config)))
        recorder = _recorder(settings, held)
        from pagoda.serve.compose import open_engine  # noqa: PLC0415 - brings torch

        drives = ", ".join(map(str, settings.drive.directories())) or "off"
        _log.info("loading %s, drive tier: %s", settings.model.path, drives)
        with Console(stderr=True).status("Loading the model"):
            engine = open_engine(settings, recorder.observing(metrics) if recorder else metrics)
        if recorder:
            recorder.begin(engine.card.block_tokens)
        metrics.watch_engine(engine.stats)
        name = settings.model.served_name
        run_server(
            engine,
            config,
            address=address,
            registry=registry,
            on_ready=lambda url: announce(url, name, as_json=as_json),
        )


def _recorder(settings: Settings, held: ExitStack) -> Recorder | None:
    """What records requests until `held` is closed, if that is asked for. Raises SettingsError
    before a model is loaded."""
    if not settings.server.record:
        return None
    return held.enter_context(closing(Recorder(Path(settings.server.record))))


def require_model(resolved: Resolved) -> None:
    """Raises SettingsError when no model was named."""
    if resolved.settings.model.path:
        return
    raise SettingsError(
        "no model is named",
        key="model.path",
        source=str(resolved.origins["model.path"]),
        remedy="give --model DIR: a directory in Hugging Face's layout, or the demonstration "
        'model, --model "$(pagoda model fetch)"',
    )


def announce(url: str, model: str, *, as_json: bool) -> None:
    """Tell standard output that clients may come; one line, at once."""
    if as_json:
        typer.echo(json.dumps({"url": url, "model": model, "pid": os.getpid()}))
    else:
        typer.echo(f"{model} answers at {url}/v1 (Ctrl-C ends it)")


def serve_config(settings: Settings) -> ServeConfig:
    """The server's own settings, from the tree."""
    server = settings.server
    return ServeConfig(
        host=server.host,
        port=server.port,
        api_key=server.api_key.get_secret_value() or None,
        model_name=settings.model.served_name,
        max_connections=server.max_connections,
        max_body_bytes=server.max_body,
        max_waiting=server.max_waiting,
        grace_s=server.shutdown_grace,
        flush_s=settings.store.flush_deadline,
    )
