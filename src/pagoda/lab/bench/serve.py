"""`pagoda bench serve`: load a server, from its URL to the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pagoda.lab.bench import host
from pagoda.lab.bench.client import Asker, open_client, served_model
from pagoda.lab.bench.load import LoadSettings
from pagoda.lab.bench.load_run import OnSample, run_load
from pagoda.lab.bench.serve_report import report


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server to load. `model` None takes the first that it serves; `extra` is merged into
    every request."""

    url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    extra: dict[str, Any] = field(default_factory=dict)


async def measure_server(
    target: Target, settings: LoadSettings, on_sample: OnSample
) -> dict[str, Any]:
    """The report of one load, after one short chat that warms up and is not counted.

    Raises SettingsError when the server cannot be used at all; single failures are counted.
    """
    before = host.facts()
    async with open_client(target.url, api_key=target.api_key) as client:
        asker = Asker(
            client=client,
            model=target.model or await served_model(client),
            max_tokens=settings.max_tokens,
            seed=settings.seed,
            extra=target.extra,
        )
        asker = await asker.settle(limit_s=settings.timeout_s)
        run = await run_load(asker, settings, on_sample)
        server = {
            "url": str(client.base_url).rstrip("/"),
            "model": asker.model,
            "usage_asked": asker.usage,
        }
    return report(run, settings) | {"server": server, "client": before}
