"""`pagoda cache prefetch`: have a prompt's blocks brought up, and wait for it."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from pagoda.cli.cache_flags import AsJson, Chat, File, KeyFile, Salt, SaltFile, Text, Url
from pagoda.cli.cache_prompt import required_prompt, salt_of
from pagoda.cli.console import print_json
from pagoda.cli.flags import takes_settings
from pagoda.cli.server import ServerCalls
from pagoda.settings import Resolved

_LOOK_EVERY_S = 0.2


@takes_settings()
def prefetch(  # noqa: PLR0913
    resolved: Resolved,
    prompt: Text = None,
    *,
    file: File = None,
    chat: Chat = False,
    salt: Salt = None,
    salt_file: SaltFile = None,
    wait: Annotated[bool, typer.Option(help="Wait until it has ended.")] = True,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Bring a prompt's blocks up into memory, before somebody asks.

    Status 1 when it stopped half-way: a block could not be had, or memory is too small.
    """
    body = required_prompt(prompt, file, chat=chat)
    body["cache_salt"] = salt_of(salt, salt_file)
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
        one = calls.post("/cache/prefetch", body)
        if wait:
            one = _wait_for(one, calls)
    if as_json:
        print_json(one)
    else:
        typer.echo(
            f"{one['state']}: {one['done']:,} of {one['blocks'] - one['present']:,} blocks brought "
            f"up; {one['present']:,} were there"
        )
    if one["state"] == "stopped":
        raise typer.Exit(1)


def _wait_for(one: dict[str, Any], calls: ServerCalls) -> dict[str, Any]:
    """Look at a prefetch until it has ended, or the server has forgotten it."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("prefetching", total=None)
        while one["state"] == "running":
            time.sleep(_LOOK_EVERY_S)
            found = calls.get("/cache/prefetch")["prefetches"]
            one = next((other for other in found if other["id"] == one["id"]), one)
            bar.update(task, completed=one["done"], total=one["blocks"] - one["present"])
    return one
