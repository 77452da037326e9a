"""Where a drive's write budget is kept over restarts: `budget.json` in its directory.

    {"format": "pagoda-budget", "version": 1,
     "left_bytes": 1073741824, "written_bytes": 5368709120, "at_ms": 1790000000000}

Written whole under another name, synced, then renamed, so that a power cut leaves the old
account or the new one; mode 0600. A damaged file counts as an unknown account
(core.budget.unknown_account); a file of a newer version, or something that is no file, is
refused and left as it is.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, fields
from pathlib import Path

from pagoda.core.budget import UNLIMITED_BYTES, Account
from pagoda.core.errors import FormatError
from pagoda.tiers.drive.oserrors import typed_errors

LEDGER_NAME = "budget.json"

_FORMAT, _VERSION = "pagoda-budget", 1
_NUMBERS = {field.name for field in fields(Account)}
_LIMIT_BYTES = 4096
_NOFOLLOW = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # neither links nor a pipe's writer


class Damaged(ValueError):
    """The file is there and says nothing that can be relied on."""


class Ledger:
    """The account of one drive. Raises TierError."""

    def __init__(self, directory: Path, *, tier: str) -> None:
        self.path = directory / LEDGER_NAME
        self._tier = tier

    def read(self) -> Account | None:
        """The account; None when there is none yet. Raises Damaged for a damaged file."""
        with typed_errors(self._tier, str(self.path)):
            try:
                fd = os.open(self.path, os.O_RDONLY | _NOFOLLOW)
            except FileNotFoundError:
                return None
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise self._refused("is not a file")
                text = os.read(fd, _LIMIT_BYTES)
            finally:
                os.close(fd)
        return self._parse(text)

    def keep(self, account: Account) -> None:
        """Make an account durable. Blocks on I/O."""
        text = json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(account)})
        unnamed = self.path.with_suffix(".new")
        with typed_errors(self._tier, str(self.path)):
            unnamed.unlink(missing_ok=True)
            fd = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o600)
            try:
                os.write(fd, text.encode())
                os.fsync(fd)
            finally:
                os.close(fd)
            unnamed.replace(self.path)
            _sync_directory(self.path.parent)

    def _parse(self, text: bytes) -> Account:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Damaged(f"{self.path} is not JSON") from error
        if not isinstance(value, dict) or value.get("format") != _FORMAT:
            raise Damaged(f"{self.path} is no write budget")
        version = value.get("version")
        if type(version) is not int or version < 1:
            raise Damaged(f"{self.path} names no version")
        if version > _VERSION:
            raise self._refused(f"has version {version}; this Pagoda reads {_VERSION}")
        numbers = {name: whole for name, whole in value.items() if _sound(whole)}
        del numbers["version"]
        if set(numbers) != _NUMBERS or len(value) != len(numbers) + 2:
            raise Damaged(f"{self.path} has fields that are missing, unknown or out of range")
        return Account(**numbers)

    def _refused(self, what: str) -> FormatError:
        return FormatError(
            f"{self.path} {what}",
            tier=self._tier,
            path=str(self.path),
            remedy="use the Pagoda that wrote it, choose another drive.path, or move it away",
        )


def _sound(value: object) -> bool:
    return type(value) is int and 0 <= value <= UNLIMITED_BYTES


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
