"""From layers of raw values to one frozen tree in which every value knows its origin.

Precedence, rising: defaults, settings file, PAGODA_* variables, flags. The tree is built once,
at the edge of the process; nothing below reads a file or variable of its own.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr, ValidationError

from pagoda.core.errors import SettingsError
from pagoda.settings.files import read_text
from pagoda.settings.keys import Key, all_keys, keys_by_name
from pagoda.settings.sources import (
    DEFAULT,
    Layer,
    Origin,
    Rank,
    environment_layer,
    file_layer,
    find_file,
    flag_layer,
)
from pagoda.settings.tree import Remote, Server, Settings
from pagoda.tiers.remote.open import SCHEMES

# Secrets that may come from a file: the setting, the one that names the file, in words.
_SECRET_FILES = (
    ("server.api_key", "server.api_key_file", "API key"),
    ("remote.password", "remote.password_file", "password"),
)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A tree of settings with the origin of each value, by dotted name."""

    settings: Settings
    origins: Mapping[str, Origin]

    def rows(self) -> Iterator[tuple[Key, object, Origin]]:
        """Each key with its value and origin, in the order of the tree."""
        for key in all_keys():
            yield key, key.value_in(self.settings), self.origins[key.name]


def load(
    *,
    flags: Mapping[str, str] | None = None,
    config: str | None = None,
    environ: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> Resolved:
    """Settings from all sources. `flags` maps dotted names to texts, `config` is --config,
    `directory` is where pagoda.toml is looked for (the working directory). Raises
    SettingsError for an unknown name or a bad value anywhere."""
    found = find_file(config, environ=environ, directory=directory or Path.cwd())
    layers = [file_layer(*found)] if found else []
    return resolve([*layers, environment_layer(environ), flag_layer(flags or {})])


def load_file(path: Path) -> Resolved:
    """Settings from one file alone, for checking it."""
    return resolve([file_layer(path, Origin(Rank.FILE, str(path)))])


def resolve(layers: Sequence[Layer]) -> Resolved:
    """The tree that `layers` describe, later ones overriding earlier ones."""
    merged: dict[str, tuple[object, Origin]] = {}
    for layer in layers:
        merged |= layer
    for secret, file, what in _SECRET_FILES:
        _read_secret(merged, secret, file, what)
    tree: dict[str, dict[str, object]] = {}
    for name, (value, _) in merged.items():
        section, field = name.split(".")
        tree.setdefault(section, {})[field] = value
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        raise _bad_value(error, merged) from None  # pydantic's text may quote a secret
    origins = {key.name: merged.get(key.name, (None, DEFAULT))[1] for key in all_keys()}
    _require_api_key(settings.server, origins["server.host"])
    _require_bare_url(settings.remote, origins["remote.url"])
    return Resolved(settings, origins)


def _read_secret(
    merged: dict[str, tuple[object, Origin]], secret: str, file: str, what: str
) -> None:
    """Fill the setting `secret` from the file that `file` names, unless a stronger source has
    set it; `what` is the secret in words."""
    text, origin = merged.get(file, ("", DEFAULT))
    _, rival = merged.get(secret, ("", DEFAULT))
    if not isinstance(text, str) or not text or rival.rank > origin.rank:
        return
    try:
        value = read_text(Path(os.path.expanduser(text))).strip()  # noqa: PTH111
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        message = f"cannot read the {what} in {text}: {reason}"
        raise _secret_file_error(message, file, origin) from error
    if not value:
        raise _secret_file_error(f"the {what} file {text} is empty", file, origin)
    merged[secret] = (value, Origin(origin.rank, f"{text} ({origin})"))


def _secret_file_error(message: str, file: str, origin: Origin) -> SettingsError:
    return SettingsError(
        f"{origin}: {message}",
        key=file,
        source=str(origin),
        remedy="name a readable file that holds the secret and nothing else",
    )


def _require_bare_url(remote: Remote, origin: Origin) -> None:
    """A URL is shown in messages and in `pagoda config`: no secret may be in it. Not quoted."""
    if not remote.url:
        return
    scheme, _, rest = remote.url.partition("://")
    if scheme not in SCHEMES or not rest:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise _url_error("is no address of a shared store", f"begin it with {known}", origin)
    if "@" in rest.partition("/")[0]:
        remedy = "take them out, and set remote.user and remote.password_file"
        raise _url_error("holds credentials", remedy, origin)


def _url_error(why: str, remedy: str, origin: Origin) -> SettingsError:
    return SettingsError(
        f"{origin}: remote.url {why}", key="remote.url", source=str(origin), remedy=remedy
    )


def _require_api_key(server: Server, origin: Origin) -> None:
    if is_loopback(server.host) or server.api_key.get_secret_value():
        return
    raise SettingsError(
        f"{origin}: server.host = {server.host!r} lets other machines in, and no API key is set",
        key="server.host",
        source=str(origin),
        remedy="set PAGODA_SERVER_API_KEY or --server-api-key-file, or listen on 127.0.0.1",
    )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone; a name other than localhost
    counts as reachable, whatever it may resolve to."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _bad_value(error: ValidationError, merged: Layer) -> SettingsError:
    """The first of pydantic's complaints as an error that names key, origin and remedy."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = keys_by_name()[".".join(str(part) for part in first["loc"][:2])]
    value, origin = merged[key.name]
    shown = "********" if isinstance(key.default, SecretStr) else repr(value)
    reason = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    default = f"; default {key.format(key.default)}" if key.format(key.default) else ""
    return SettingsError(
        f"{origin}: {key.name} = {shown} {_clause(reason)}",
        key=key.name,
        source=str(origin),
        remedy=key.description.rstrip(".") + default,
    )


def _clause(reason: str) -> str:
    """Join a complaint to the value it is about: "is not…", or ": 'G' is ambiguous…"."""
    return reason if reason.startswith(("is ", "must ", "should ")) else f"is not valid: {reason}"
