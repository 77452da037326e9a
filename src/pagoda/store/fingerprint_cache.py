"""Digests of weights files, remembered beside them: reading 100 GB at each start takes a minute.

An entry counts only while the file's whole stamp (size, both times, inode, device) is the one
it was made under. Whoever can write to the cache can write to the weights as well, so its check
sum is for accidents; a cache that is damaged, foreign or newer is computed anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagoda.store.weight_files import Stamp

NAME = ".pagoda-fingerprint.json"
VERSION = 1
_LIMIT_BYTES = 4 << 20
_log = logging.getLogger("pagoda.store")


class FingerprintCache:
    """What is remembered for the weights at `path`: in their directory, or where that cannot be
    written, in a file of `fallback` that is named for it."""

    def __init__(self, path: Path, fallback: Path | None) -> None:
        directory = (path.parent if path.is_file() else path).resolve()
        self._places = [directory / NAME]
        if fallback is not None:
            name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]
            self._places.append(fallback / f"{name}.json")
        self._entries: dict[str, dict[str, Any]] = {}
        for place in reversed(self._places):
            self._entries |= _read(place)

    def get(self, file: Path, stamp: Stamp, mode: str) -> bytes | None:
        """The digest that was made of this very content, if there is one."""
        entry = self._entries.get(file.name)
        if entry is None or entry["stamp"] != stamp.values() or mode not in entry:
            return None
        return bytes.fromhex(entry[mode])

    def put(self, file: Path, stamp: Stamp, digests: Mapping[str, bytes]) -> None:
        """Remember digests by mode; what was known under another stamp is forgotten."""
        entry = self._entries.get(file.name)
        if entry is None or entry["stamp"] != stamp.values():
            entry = self._entries[file.name] = {"stamp": stamp.values()}
        entry |= {mode: digest.hex() for mode, digest in digests.items()}

    def save(self) -> None:
        """Write it to the first place that takes it, whole or not at all."""
        text = json.dumps(
            {"version": VERSION, "files": self._entries, "check": _check(self._entries)}, indent=1
        )
        for place in self._places:
            try:
                _replace(place, text)
            except OSError as error:
                _log.debug("no fingerprint cache at %s: %s", place, error.strerror)
            else:
                return


def _read(place: Path) -> dict[str, dict[str, Any]]:
    """The entries of a sound cache; nothing of any other."""
    try:
        with place.open("rb") as stream:
            content = json.loads(stream.read(_LIMIT_BYTES))
        entries = content["files"]
        sound = content["version"] == VERSION and content["check"] == _check(entries)
        return {str(name): _entry(entry) for name, entry in entries.items()} if sound else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        _log.info("%s is no fingerprint cache that can be used: computing anew", place)
        return {}


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    """One file's entry, its values checked. Raises what `_read` takes for damage."""
    digests = {mode: value for mode, value in entry.items() if mode != "stamp"}
    if any(len(bytes.fromhex(value)) != 16 for value in digests.values()):
        raise ValueError("a digest has 16 bytes")
    return {"stamp": [int(value) for value in entry["stamp"]], **digests}


def _check(entries: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def _replace(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=NAME)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).replace(place)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
