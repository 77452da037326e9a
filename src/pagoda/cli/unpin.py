"""`pagoda unpin`: end pins before their time. Their blocks stay until their place is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

import typer

from pagoda.cli.cache_flags import AsJson, KeyFile, Url
from pagoda.cli.flags import takes_settings
from pagoda.cli.server import ServerCalls
from pagoda.core.errors import RequestError, SettingsError
from pagoda.settings import Resolved

_DIGITS = 16  # of a whole id


@takes_settings()
def command(  # noqa: PLR0913 - a command's parameters are its flags
    resolved: Resolved,
    pins: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PIN", help="Pins, as `pagoda pin ls` shows them, or how they begin."
        ),
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
            ids = _whole(pins or (), calls)
            paths = [f"/cache/pins/{quote(id, safe='')}" for id in ids]
            gone = sum(calls.delete(path)["unpinned"] for path in paths)
    typer.echo(json.dumps({"unpinned": gone}) if as_json else f"pins ended: {gone:,}")


def _whole(pins: Sequence[str], calls: ServerCalls) -> list[str]:
    """The ids that are meant, each once. A beginning means the one pin that has it; RequestError
    when none or several do, and then no pin ends."""
    if all(len(pin) >= _DIGITS for pin in pins):
        return list(dict.fromkeys(pins))
    known = [one["id"] for one in calls.get("/cache/pins")["pins"]]
    return list(dict.fromkeys(_meant(pin, known) for pin in pins))


def _meant(pin: str, known: Sequence[str]) -> str:
    if len(pin) >= _DIGITS:
        return pin
    found = [id for id in known if pin and id.startswith(pin.lower())]
    if len(found) == 1:
        return found[0]
    if found:
        raise RequestError(
            f"{len(found)} pins begin with {pin!r}: {', '.join(sorted(found))}",
            param="pin",
            code="ambiguous",
            remedy="give more digits of the one that is meant",
        )
    raise RequestError(
        f"no pin begins with {pin!r}",
        param="pin",
        code="not_found",
        remedy="`pagoda pin ls` shows all of them",
    )
