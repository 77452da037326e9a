"""`pagoda pin`: keep a prefix in the caches of a running server, for a while; see what is kept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from pagoda.cli.cache_flags import AsJson, Chat, KeyFile, Salt, SaltFile, Url, seconds_of
from pagoda.cli.cache_prompt import prompt_body, salt_of
from pagoda.cli.console import output, print_json
from pagoda.cli.flags import takes_settings
from pagoda.cli.pin_tables import show_pin, show_pins
from pagoda.cli.server import ServerCalls
from pagoda.core.errors import SettingsError
from pagoda.settings import Resolved

app = typer.Typer(invoke_without_command=True)


@app.callback()
@takes_settings()
def pin(  # noqa: PLR0913 - a command's parameters are its flags
    resolved: Resolved,
    ctx: typer.Context,
    *,
    prefix_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The prefix's text; - for standard input; .json: token ids, or a chat's messages.",
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose pin it is, and whose budget it uses.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When it ends, such as 2h; else pins.expires."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="What it may have of a tier, such as 10%."),
    ] = None,
    chat: Chat = False,
    salt: Salt = None,
    salt_file: SaltFile = None,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Keep a prefix's blocks in the caches of a running server, until the pin ends.

    Blocks that are not there yet are kept once a request brings them. Pin again to renew; `pagoda
    pin ls` shows pins, `pagoda unpin` ends them.
    """
    if ctx.invoked_subcommand is not None:
        return
    body = prompt_body(None, prefix_file, chat=chat)
    if not body:
        raise _fault("no prefix is named", "--prefix-file", "name a file with --prefix-file")
    if owner is None:
        raise _fault("no owner is named", "--owner", "say with --owner whose pin it is")
    body["owner"] = owner
    body["expires_s"] = seconds_of(
        expires, key="pin", source="--expires", remedy="write it as 30min, 2h or 7d"
    )
    body["budget"] = None if budget is None else _share(budget)
    body["cache_salt"] = salt_of(salt, salt_file)
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
        pinned = calls.post("/cache/pins", body)
    print_json(pinned) if as_json else show_pin(pinned, output())


@app.command("ls")
@takes_settings()
def ls(
    resolved: Resolved,
    *,
    owner: Annotated[str | None, typer.Option(metavar="NAME", help="One owner's only.")] = None,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show pins: whose they are, when they end, and how much of each is in which tier."""
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
        found = calls.get("/cache/pins", owner=owner)
    print_json(found) if as_json else show_pins(found["pins"], output())


def _share(text: str) -> float:
    """10% or 0.1."""
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = math.nan
    if not math.isfinite(share):
        raise _fault(f"{text!r} is no share", "--budget", "write it as 10% or 0.1")
    return share


def _fault(message: str, source: str, remedy: str) -> SettingsError:
    return SettingsError(message, key="pin", source=source, remedy=remedy)
