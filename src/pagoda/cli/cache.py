"""`pagoda cache`: see, clear, fill and drain the caches of a running server."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pagoda.cli.cache_flags import (
    AsJson,
    Chat,
    File,
    KeyFile,
    Older,
    Salt,
    SaltFile,
    Space,
    Tenant,
    Text,
    Url,
    Wide,
    seconds_of,
)
from pagoda.cli.cache_prefetch import prefetch
from pagoda.cli.cache_prompt import prompt_body, required_prompt, salt_of
from pagoda.cli.cache_quarantine import quarantine
from pagoda.cli.cache_tables import show_cleared, show_holdings, show_lookup, show_ttls
from pagoda.cli.console import output, print_json
from pagoda.cli.flags import takes_settings
from pagoda.cli.server import ServerCalls
from pagoda.core.errors import SettingsError
from pagoda.core.holdings import tenant_id
from pagoda.settings import Resolved

app = typer.Typer(
    help="See, clear, fill and drain the caches of a running server.", no_args_is_help=True
)

FAILED = 1


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
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show what is cached: blocks, bytes and ages by tier, tenant and namespace (with --wide, all
    that is known); and which tiers take no more: they are fenced, draining or lost."""
    own = salt_of(salt, salt_file)
    tenant = tenant if own is None else tenant_id(own)
    age_s = _seconds(older_than)
    tiers: list[dict[str, Any]] = []
    if offline is not None:
        lines = _offline(offline, age_s)
    else:
        with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
            lines = calls.get("/cache", older_than_s=age_s)["holdings"]
            tiers = calls.get("/cache/tiers")["tiers"]
    wanted = {"tier": tier, "tenant": tenant}
    lines = [
        line
        for line in lines
        if all(value in (None, line[name]) for name, value in wanted.items())
        and line["namespace"].startswith((namespace or "").lower())
    ]
    tiers = [one for one in tiers if tier in (None, one["tier"])]
    if as_json:
        print_json({"holdings": lines, "tiers": tiers})
    else:
        show_holdings(lines, tiers, output(wide=wide), wide=wide)


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
    body = required_prompt(prompt, file, chat=chat)
    body["cache_salt"] = salt_of(salt, salt_file)
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
        found = calls.post("/cache/lookup", body)
    print_json(found) if as_json else show_lookup(found)


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
    """Clear blocks from every tier of the node, and of whole tenants and namespaces from the
    shared store too; headers are read back to verify it.

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
    print_json(cleared) if as_json else show_cleared(cleared, body)
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
    print_json(ttls) if as_json else show_ttls(ttls["ttls"])


app.command("prefetch")(prefetch)
app.command("quarantine")(quarantine)


@app.command("drain")
@takes_settings()
def drain(
    resolved: Resolved,
    tier: Annotated[str, typer.Argument(metavar="NAME", help="The tier, as `ls` shows it.")],
    *,
    url: Url = None,
    api_key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Write no more to a tier, such as a drive that is to be taken out.

    What it holds is read as before. A restart of the server forgets that it was drained.
    """
    with ServerCalls(resolved.settings.server, url=url, api_key_file=api_key_file) as calls:
        one = calls.post("/cache/drain", {"tier": tier})
    if as_json:
        print_json(one)
    else:
        typer.echo(f"{one['tier']} is {one['standing']}: it holds {one['blocks']:,} blocks")


def _offline(directory: Path, age_s: float | None) -> list[dict[str, Any]]:
    from pagoda.store.offline import stored_in  # noqa: PLC0415 - a client needs no store

    before_s = None if age_s is None else time.time() - age_s
    return [asdict(one) for one in stored_in(directory, before_s=before_s)]


def _seconds(text: str | None) -> float | None:
    return seconds_of(text, key="time", source="TIME", remedy="write it as 30s, 12h or 7d")
