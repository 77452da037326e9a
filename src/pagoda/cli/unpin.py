"""`pagoda unpin`: end pins before their time. Their blocks stay until their place is needed."""

from __future__ import annotations

import json
from typing import Annotated
from urllib.parse import quote

import typer

from pagoda.cli.cache_flags import AsJson, KeyFile, Url
from pagoda.cli.flags import takes_settings
from pagoda.cli.server import ServerCalls
from pagoda.core.errors import SettingsError
from pagoda.settings import Resolved


@takes_settings()
def command(  # noqa: PLR0913 - a command's parameters are its flags
    resolved: Resolved,
    pins: Annotated[
        list[str] | None,
        typer.Argument(metavar="PIN", help="Pins, as `pagoda pin ls` shows them."),
    ] = None,
    *,
    owner: Annotated[str | None, typer.Option(metavar="NAME", help="All of an owner's.")] = None,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """End pins before their time. Their blocks stay until their place is needed."""
    if bool(pins) == (owner is not None):
        raise SettingsError(
            "say which pins end",
            key="pin",
            source="unpin",
            remedy="name pins, or an owner with --owner, and not both",
        )
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
        if owner is not None:
            gone = calls.delete("/cache/pins", owner=owner)["unpinned"]
        else:
            paths = [f"/cache/pins/{quote(pin, safe='')}" for pin in pins or ()]
            gone = sum(calls.delete(path)["unpinned"] for path in paths)
    typer.echo(json.dumps({"unpinned": gone}) if as_json else f"pins ended: {gone:,}")
