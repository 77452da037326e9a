"""Flags that several commands of `pagoda cache` have in common, and `pagoda pin` with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagoda.core.errors import SettingsError
from pagoda.settings.units import parse_duration

Url = Annotated[
    str | None, typer.Option(help="Server to ask; else the one that settings describe.")
]
KeyFile = Annotated[
    Path | None, typer.Option(help="File with the server's key; else PAGODA_API_KEY.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Wide = Annotated[bool, typer.Option("--wide", help="All columns, however wide they are.")]
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


def seconds_of(text: str | None, *, key: str, source: str, remedy: str) -> float | None:
    """A time that a flag gives, such as 2h; SettingsError if it is none."""
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise SettingsError(f"{text!r} {error}", key=key, source=source, remedy=remedy) from error
