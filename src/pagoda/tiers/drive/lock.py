"""One engine a directory: an advisory lock whose file says who holds it.

The kernel drops the lock with the process, however it dies, so a stale file never blocks.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path

from pagoda.core.errors import DirectoryLocked

LOCK_NAME = "lock"


class DirectoryLock:
    """Exclusive ownership of a slab directory; raises DirectoryLocked naming the owner."""

    def __init__(self, directory: Path, *, tier: str) -> None:
        path = directory / LOCK_NAME
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _owner(self._fd)
            os.close(self._fd)
            raise DirectoryLocked(
                f"{directory} belongs to a running engine: {owner}",
                tier=tier,
                path=str(directory),
                owner=owner,
                remedy="give each engine its own directory (--drive-path), or stop that one",
            ) from error
        self._sign()

    def release(self) -> None:
        """Give the directory back; safe to call twice."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def _sign(self) -> None:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": int(time.time())}
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(owner).encode(), 0)


def _owner(fd: int) -> str:
    try:
        owner = json.loads(os.pread(fd, 4096, 0))
        return f"process {owner['pid']} on {owner['host']}"
    except (ValueError, KeyError, TypeError):
        return "unknown process"
