"""`pagoda cache quarantine`: namespaces that a check has found wrong; trusting them again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pagoda.cli.cache_flags import AsJson, KeyFile, Url
from pagoda.cli.cache_tables import ages
from pagoda.cli.console import output
from pagoda.cli.flags import takes_settings
from pagoda.cli.server import ServerCalls
from pagoda.settings import Resolved


@takes_settings()
def quarantine(  # noqa: PLR0913 - a command's parameters are its flags
    resolved: Resolved,
    *,
    lift: Annotated[
        str | None,
        typer.Option(metavar="NAMESPACE", help="Serve and store it again; how it begins will do."),
    ] = None,
    offline: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A drive directory; no server, and no engine that runs."),
    ] = None,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the namespaces of which nothing is served or stored, for a check found a wrong block;
    or lift the quarantine of one.

    Lifting trusts the blocks again that are there. `pagoda cache clear --namespace` drops them
    instead, and ends the quarantine once it is verified.
    """
    if offline is not None:
        found = _offline(offline, lift)
    else:
        with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
            if lift is None:
                found = calls.get("/cache/quarantine")["quarantined"]
            else:
                found = [calls.post("/cache/quarantine/lift", {"namespace": lift})]
    if as_json:
        typer.echo(json.dumps({"quarantined" if lift is None else "lifted": found}))
    else:
        _show(found, lifted=lift is not None)


def _offline(directory: Path, lift: str | None) -> list[dict[str, Any]]:
    from pagoda.store.offline import lift_in, quarantined_in  # noqa: PLC0415 - a client needs no store

    found = quarantined_in(directory) if lift is None else [lift_in(directory, lift)]
    return [asdict(one) for one in found]


def _show(found: Sequence[dict[str, Any]], *, lifted: bool) -> None:
    console = output()
    for one in found:
        since = ages(one["since_s"], one["since_s"], time.time())
        state = "is out of quarantine, where it was" if lifted else "is in quarantine"
        head = f"{one['namespace']} (tenant {one['tenant']})"
        console.print(f"{head} {state} for {since}: {one['detail']}", highlight=False, markup=False)
    if not found:
        console.print("nothing is in quarantine")
