"""`pagoda cache`: see, clear and fill the caches of a running server."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from pagoda.cli.cache_prompt import prompt_body, salt_of
from pagoda.cli.cache_tables import show_cleared, show_holdings, show_lookup, show_ttls
from pagoda.cli.flags import takes_settings
from pagoda.cli.server import ServerCalls
from pagoda.core.errors import SettingsError
from pagoda.core.holdings import tenant_id
from pagoda.settings import Resolved
from pagoda.settings.units import parse_duration

app = typer.Typer(help="See, clear and fill the caches of a running server.", no_args_is_help=True)

FAILED = 1
_LOOK_EVERY_S = 0.2

Url = Annotated[
    str | None, typer.Option(help="Server to ask; else the one that settings describe.")
]
KeyFile = Annotated[
    Path | None, typer.Option(help="File with the server's key; else PAGODA_API_KEY.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Text = Annotated[str | None, typer.Argument(help="The prompt's text.", show_default=False)]
File = Annotated[
    Path | None,
    typer.Option(help="Its text; - for standard input; .json: token ids, or a chat's messages."),
]
Chat = Annotated[bool, typer.Option("--chat", help="The text is a user's message in a chat.")]
Salt = Annotated[str | None, typer.Option(help="The tenant's cache_salt.")]
SaltFile = Annotated[
    Path | None, typer.Option(help="A file with it: other users see a command's arguments.")
]
Tenant = Annotated[str | None, typer.Option(help="A tenant, as `pagoda cache ls` shows it.")]
Space = Annotated[str | None, typer.Option(help="A namespace, or how it begins.")]
Older = Annotated[
    str | None, typer.Option(metavar="TIME", help="Blocks written longer ago, such as 7d.")
]


@app.command("ls")
@takes_settings()
def ls(  # noqa: PLR0913 - a command's parameters are its flags
    resolved: Resolved,
    *,
    tier: Annotated[str | None, typer.Option(help="One tier only.")] = None,
    tenant: Tenant = None,
    salt: Salt = None,
    salt_file: SaltFile = None,
    namespace: Space = None,
    older_than: Older = None,
    offline: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read a drive directory; no server needed.")
    ] = None,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what is cached: blocks, bytes, tokens and ages by tier, tenant and namespace."""
    own = salt_of(salt, salt_file)
    tenant = tenant if own is None else tenant_id(own)
    age_s = _seconds(older_than)
    if offline is not None:
        lines = _offline(offline, age_s)
    else:
        with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
            lines = calls.get("/cache", older_than_s=age_s)["holdings"]
    wanted = {"tier": tier, "tenant": tenant}
    lines = [
        line
        for line in lines
        if all(value in (None, line[name]) for name, value in wanted.items())
        and line["namespace"].startswith((namespace or "").lower())
    ]
    _print_json({"holdings": lines}) if as_json else show_holdings(lines)


@app.command("lookup")
@takes_settings()
def lookup(  # noqa: PLR0913
    resolved: Resolved,
    prompt: Text = None,
    *,
    file: File = None,
    chat: Chat = False,
    salt: Salt = None,
    salt_file: SaltFile = None,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show how much of a prompt is resident, and where. No block counts as used by it."""
    body = _prompt(prompt, file, chat=chat)
    body["cache_salt"] = salt_of(salt, salt_file)
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
        found = calls.post("/cache/lookup", body)
    _print_json(found) if as_json else show_lookup(found)


@app.command("clear")
@takes_settings()
def clear(  # noqa: PLR0913
    resolved: Resolved,
    prompt: Text = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every block of every tenant.")] = False,
    tenant: Tenant = None,
    salt: Salt = None,
    salt_file: SaltFile = None,
    namespace: Space = None,
    older_than: Older = None,
    file: File = None,
    chat: Chat = False,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Clear blocks from every tier, and read the headers back to verify it.

    Several conditions together clear what meets all of them. A prompt names its last whole block
    and every block that continues it. Status 1 when something is left.
    """
    body = prompt_body(prompt, file, chat=chat) | {
        "tenant": tenant,
        "cache_salt": salt_of(salt, salt_file),
        "namespace": namespace,
        "older_than_s": _seconds(older_than),
    }
    some = any(value is not None for value in body.values())
    if some == everything:
        raise SettingsError(
            "say what to clear",
            key="all",
            source="clear",
            remedy="--all, or any of --tenant, --salt, --namespace, --older-than and a prompt",
        )
    busy = Console(stderr=True).status("Clearing, and reading headers back")
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls, busy:
        cleared = calls.post("/cache/clear", body | {"all": everything})
    _print_json(cleared) if as_json else show_cleared(cleared)
    if not cleared["verified"]:
        raise typer.Exit(FAILED)


@app.command("ttl")
@takes_settings()
def ttl(  # noqa: PLR0913
    resolved: Resolved,
    time_to_live: Annotated[
        str | None,
        typer.Argument(metavar="TIME", help="Such as 30d; off removes it; nothing shows all."),
    ] = None,
    *,
    tenant: Tenant = None,
    salt: Salt = None,
    salt_file: SaltFile = None,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show, set or remove times to live: a tenant's, or that of all who have none of their own."""
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
        if time_to_live is None:
            ttls = calls.get("/cache/ttl")
        else:
            body = {"tenant": tenant, "cache_salt": salt_of(salt, salt_file)}
            given = {name: value for name, value in body.items() if value is not None}
            seconds = None if time_to_live == "off" else _seconds(time_to_live)
            ttls = calls.set_ttl(given, seconds)
    _print_json(ttls) if as_json else show_ttls(ttls["ttls"])


@app.command("prefetch")
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
    body = _prompt(prompt, file, chat=chat)
    body["cache_salt"] = salt_of(salt, salt_file)
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
        one = calls.post("/cache/prefetch", body)
        if wait:
            one = _wait_for(one, calls)
    if as_json:
        _print_json(one)
    else:
        typer.echo(
            f"{one['state']}: {one['done']:,} of {one['blocks'] - one['present']:,} blocks brought "
            f"up; {one['present']:,} were there"
        )
    if one["state"] == "stopped":
        raise typer.Exit(FAILED)


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


def _prompt(text: str | None, file: Path | None, *, chat: bool) -> dict[str, Any]:
    body = prompt_body(text, file, chat=chat)
    if not body:
        raise SettingsError(
            "no prompt is given",
            key="prompt",
            source="PROMPT",
            remedy="give a text, or name a file with --file",
        )
    return body


def _offline(directory: Path, age_s: float | None) -> list[dict[str, Any]]:
    from pagoda.store.offline import stored_in  # noqa: PLC0415 - a client needs no store

    before_s = None if age_s is None else time.time() - age_s
    return [asdict(one) for one in stored_in(directory, before_s=before_s)]


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise SettingsError(
            f"{text!r} {error}", key="time", source="TIME", remedy="write it as 30s, 12h or 7d"
        ) from error


def _print_json(answer: dict[str, Any]) -> None:
    typer.echo(json.dumps(answer))
