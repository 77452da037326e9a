"""Values as other configurations write them. ValueError says what is wrong with one."""

from __future__ import annotations

import math
from urllib.parse import urlsplit

from pagoda.settings.foreign.translation import Outcome, maps, missing, needless
from pagoda.settings.keys import keys_by_name
from pagoda.settings.units import SIZE_LIMIT_BYTES, format_duration, format_size
from pagoda.tiers.remote.open import SCHEMES

GIB = 1 << 30
OWN = "pagoda"  # below the other cache's directory: its files are its own


def size_of_gib(value: object) -> str:
    """A size that is written as a number of GiB (LMCache says GB and multiplies by 1024³)."""
    return _size(_number(value) * GIB)


def size_of_bytes(value: object) -> str:
    """A size that is written in bytes."""
    return _size(_number(value))


def seconds_of(value: object) -> str:
    """A duration that is written as a number of seconds."""
    return format_duration(_number(value))


def is_on(value: object) -> bool:
    """A switch, as YAML, JSON and LMCache's texts write it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "1", "yes", "false", "0", "no"}:
        return value.lower() in {"true", "1", "yes"}
    if value is None:
        return False
    raise ValueError("is neither true nor false")


def path_of(value: object) -> str:
    """A directory, with or without file:// before it; "" for none."""
    if value in (None, "", False):
        return ""
    if not isinstance(value, str):
        raise ValueError("is not a path")  # noqa: TRY004 - a bad value of a file
    path = value.removeprefix("file://")
    if path != "/":
        path = path.rstrip("/")
    if not path:
        raise ValueError("is not a path")
    return path


def own_directory(path: str) -> str:
    """Pagoda's own directory below one that another cache still uses."""
    return f"{path.rstrip('/')}/{OWN}"


def remote_of(value: object) -> Outcome:
    """The shared store at a URL."""
    if value in (None, ""):
        return needless("no shared store is set")
    if not isinstance(value, str):
        raise ValueError("is not a URL")  # noqa: TRY004 - a bad value of a file
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("is not a URL") from None
    if "," in parts.netloc:
        return missing("several servers in one URL; Pagoda takes one address")
    scheme = {"valkey": "redis", "fs": "file"}.get(parts.scheme, parts.scheme)
    if scheme not in SCHEMES:
        return missing(f"there is no shared store of the kind {parts.scheme or 'that it names'}")
    note = "blocks of the other cache are not read: it fills anew"
    if parts.username or parts.password:
        note = "its user and password go into remote.user and remote.password_file; " + note
    if scheme == "file":
        return maps("remote.url", f"file://{parts.path}", note)
    place = f"{host or ''}{f':{port}' if port else ''}"
    return maps("remote.url", f"{scheme}://{place}{parts.path}", note)


def policy_of(value: object) -> Outcome:
    """The policy of the tier in memory, by name."""
    if not isinstance(value, str):
        raise ValueError("is not the name of a policy")  # noqa: TRY004 - a bad value of a file
    if value.lower() in keys_by_name()["host.policy"].choices:
        return maps("host.policy", value.lower())
    return missing("there is no policy of that name; host.policy is left at its default")


def _number(value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError("is not a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("is not a number")
    if value < 0:
        raise ValueError("is below zero")
    return float(value)


def _size(size_bytes: float) -> str:
    if size_bytes > SIZE_LIMIT_BYTES:
        raise ValueError("is larger than any file can be")
    return format_size(int(size_bytes))
