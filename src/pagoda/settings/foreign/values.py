"""Values as other configurations write them. ValueError says what is wrong with one."""

from __future__ import annotations

import math
from urllib.parse import SplitResult, urlsplit

from pagoda.settings.foreign.translation import Outcome, is_off, maps, missing, needless
from pagoda.settings.keys import keys_by_name
from pagoda.settings.units import DURATION_LIMIT_S, SIZE_LIMIT_BYTES, format_duration, format_size
from pagoda.tiers.remote.open import SCHEMES

GIB = 1 << 30
_PATH_SCHEMES = frozenset({"file", "fs", "unix"})  # whose paths may hold an @
_ON_TEXTS = frozenset({"1", "true", "yes", "on"})
OWN = "pagoda"  # below the other cache's directory: its files are its own


def size_of_gib(value: object) -> str:
    """A size that is written as a number of GiB (LMCache says GB and multiplies by 1024³)."""
    return _size(_number(value) * GIB)


def size_of_bytes(value: object) -> str:
    """A size that is written in bytes."""
    return _size(_number(value))


def seconds_of(value: object) -> str:
    """A duration that is written as a number of seconds."""
    seconds = _number(value)
    if seconds > DURATION_LIMIT_S:
        raise ValueError("is longer than a year")
    return format_duration(seconds)


def is_on(value: object) -> bool:
    """A switch, as YAML, JSON and LMCache's texts write it."""
    if is_off(value):
        return False
    if value in (True, 1) or (isinstance(value, str) and value.lower() in _ON_TEXTS):
        return True
    raise ValueError("is neither true nor false")


def path_of(value: object) -> str:
    """A directory, with or without file:// before it; "" for none."""
    if value in (None, "", False):
        return ""
    if not isinstance(value, str):
        raise ValueError("is not a path")  # noqa: TRY004 - a bad value of a file
    path = value.removeprefix("file://")
    if "://" in path:
        raise ValueError("is not a path")
    if path != "/":
        path = path.rstrip("/")
    if not path:
        raise ValueError("is not a path")
    return path


def own_directory(path: str) -> str:
    """Pagoda's own directory below one that another cache still uses."""
    return f"{path.rstrip('/')}/{OWN}"


def no_keys(value: object) -> Outcome:
    """Of a key that should hold others, and holds none."""
    if is_off(value):
        return needless("it holds nothing")
    raise ValueError("does not hold keys with values")


def remote_of(value: object) -> Outcome:
    """The shared store at a URL."""
    if value == "":
        return needless("no shared store is set")
    if not isinstance(value, str):
        raise ValueError("is not a URL")  # noqa: TRY004 - a bad value of a file
    named, _, rest = value.strip().partition("://")
    scheme = {"valkey": "redis", "fs": "file"}.get(named.lower(), named.lower())
    if not rest or scheme not in SCHEMES:
        kind = named if rest and named.isalnum() else "that it names"
        return missing(f"there is no shared store of the kind {kind}")
    parts, address = _url(value.strip())
    if "," in parts.netloc:
        return missing("several servers in one URL; Pagoda takes one address")
    note = "blocks of the other cache are not read: it fills anew"
    if parts.username or parts.password:
        note = "its user and password go into remote.user and remote.password_file; " + note
    if parts.query or parts.fragment:
        note = "what follows its path is not copied; " + note
    return maps("remote.url", f"{scheme}://{'' if scheme == 'file' else address}{parts.path}", note)


def _url(value: str) -> tuple[SplitResult, str]:
    """A URL's parts, and its host and port. Raises ValueError, which does not show it: an @
    behind the host tells that a piece of a password is taken for a path."""
    try:
        parts = urlsplit(value)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("is not a URL") from None
    behind = f"{parts.path}{parts.query}{parts.fragment}"
    if "@" in behind and (parts.netloc or parts.scheme not in _PATH_SCHEMES):
        raise ValueError("is not a URL: a password's / ? # and @ are written %2F %3F %23 and %40")
    host = f"[{host}]" if ":" in host else host
    return parts, f"{host}:{port}" if port is not None else host


def policy_of(value: object) -> Outcome:
    """The policy of the tier in memory, by name."""
    if not isinstance(value, str):
        raise ValueError("is not the name of a policy")  # noqa: TRY004 - a bad value of a file
    if value.lower() in keys_by_name()["host.policy"].choices:
        return maps("host.policy", value.lower())
    return missing("there is no policy of that name; host.policy is left at its default")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("is not a number")  # noqa: TRY004 - a bad value of a file
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("is larger than any number here") from None
    except ValueError:
        raise ValueError("is not a number") from None
    if not math.isfinite(number):
        raise ValueError("is not a number")
    if number < 0:
        raise ValueError("is below zero")
    return number


def _size(size_bytes: float) -> str:
    if size_bytes > SIZE_LIMIT_BYTES:
        raise ValueError("is larger than any file can be")
    return format_size(int(size_bytes))
