"""One engine a directory: an advisory lock whose file says who holds it.

The kernel drops the lock with the process, however it dies, so a stale file never blocks.
A file of that name that Pagoda did not write is refused and kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from pagoda.core.errors import DirectoryLocked, FormatError
from pagoda.tiers.drive.oserrors import typed_errors

LOCK_NAME = "lock"

_SIGNED = b'{"pid"'  # how a signature begins
_NOFOLLOW = os.O_NOFOLLOW | os.O_NONBLOCK  # neither another file by a link, nor wait on a pipe


class DirectoryLock:
    """Exclusive ownership of a slab directory.

    Raises DirectoryLocked naming the owner, FormatError when the file is somebody else's.
    """

    def __init__(self, directory: Path, *, tier: str) -> None:
        path = directory / LOCK_NAME
        with typed_errors(tier, str(path)):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | _NOFOLLOW, 0o600)
        try:
            _require(self._fd, directory, tier)
        except BaseException:
            os.close(self._fd)
            raise
        self._sign()

    def release(self) -> None:
        """Give the directory back; safe to call twice."""
        if self._fd >= 0:
            with suppress(OSError):  # a drive that died keeps the name; the lock goes with the fd
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def _sign(self) -> None:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": int(time.time())}
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(owner).encode(), 0)


def look(directory: Path, *, tier: str) -> None:
    """Raise what taking the lock would raise for the file that is there; changes nothing."""
    path = directory / LOCK_NAME
    with typed_errors(tier, str(path)):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _NOFOLLOW)
        except FileNotFoundError:
            return
    try:
        _require(fd, directory, tier)
    finally:
        os.close(fd)


def _require(fd: int, directory: Path, tier: str) -> None:
    """Lock an open lock file that is ours to lock."""
    path = directory / LOCK_NAME
    if not _ours(fd):
        raise FormatError(
            f"{path} is not a lock that Pagoda wrote; it is left as it is",
            tier=tier,
            path=str(path),
            remedy="choose another drive.path, or move that file away",
        )
    with typed_errors(tier, str(path)):
        if exclusive(fd):
            return
    owner = _owner(fd)
    raise DirectoryLocked(
        f"{directory} belongs to a running engine: {owner}",
        tier=tier,
        path=str(directory),
        owner=owner,
        remedy="give each engine its own directory (--drive-path), or stop that one",
    )


def exclusive(fd: int) -> bool:
    """Lock an open file for as long as it stays open; False when somebody else has it. Raises
    OSError where the file system knows no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ours(fd: int) -> bool:
    """Whether it may be overwritten: a regular file, empty (a power cut may leave zeros) or
    signed by an earlier owner."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return False
    text = os.pread(fd, 4096, 0)
    return text.startswith(_SIGNED) or not text.strip(b"\0")


def _owner(fd: int) -> str:
    try:
        owner = json.loads(os.pread(fd, 4096, 0))
        return f"process {owner['pid']} on {owner['host']}"
    except (ValueError, KeyError, TypeError):
        return "unknown process"
