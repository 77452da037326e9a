"""Small files of facts that survive with the blocks: one copy in each drive's directory.

    {"version": 1, "check": "9f86d0…", "content": {…}}

`check` is the SHA-256 of the content, as JSON with sorted keys. A copy is written whole under
another name, synced, then renamed, so that a power cut leaves the old one or the new one; mode
0600. What such a file says is checked by whoever keeps it (`store.catalogue`, `store.pins_file`).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagoda.core.errors import FormatError

_LIMIT_BYTES = 64 << 20
_NOFOLLOW = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # neither links nor a pipe's writer

# What reading a damaged copy raises, here and where its content is looked at.
DAMAGES = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    OverflowError,  # of an endless number where a whole one is due
)


def text_of(content: dict[str, Any], *, version: int) -> str:
    """A copy's text."""
    return json.dumps({"version": version, "check": check_of(content), "content": content})


def read_content(place: Path, *, version: int) -> dict[str, Any] | None:
    """What a copy says; None when there is none. Raises FormatError for one of a newer version
    and for something that is no file, and one of `DAMAGES` for anything that does not stand as
    it was written."""
    text = _read(place)
    if text is None:
        return None
    copy = json.loads(text)
    found = copy["version"]
    if type(found) is int and found > version:
        raise _refused(place, f"has version {found}; this Pagoda reads {version}")
    content: dict[str, Any] = copy["content"]
    if found != version or copy["check"] != check_of(content):
        raise ValueError("not as it was written")
    return content


def replace_copy(place: Path, text: str) -> None:
    """Write a copy anew, whole or not at all. Blocks on I/O; raises OSError."""
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=place.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(place)
        _sync_names(place.parent)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _sync_names(directory: Path) -> None:
    """Make what was renamed in a directory durable. Raises OSError."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_of(content: dict[str, Any]) -> str:
    """The digest that goes with a content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(place: Path) -> bytes | None:
    try:
        handle = os.open(place, os.O_RDONLY | _NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if place.is_symlink():
            raise _refused(place, "is a link") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _refused(place, "is not a file")
    with os.fdopen(handle, "rb") as stream:
        return stream.read(_LIMIT_BYTES)


def _refused(place: Path, what: str) -> FormatError:
    return FormatError(
        f"{place} {what}",
        tier="drive",
        path=str(place),
        remedy="use the Pagoda that wrote it, choose another drive.path, or move it away",
    )
