"""A lock between processes that a child process can inherit."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagoda.core.errors import ModelError
from pagoda.lab.progress import Step, Tell

POLL_S = 0.2
WAIT_S = 1800.0


@contextmanager
def locked(path: Path, tell: Tell, *, wait_s: float = WAIT_S) -> Iterator[int]:
    """Hold the lock at `path`, whose descriptor is yielded; wait for whoever holds it.

    The lock belongs to the open file (flock): it falls when every process that inherited the
    descriptor has closed it or is gone. Raises ModelError after `wait_s`.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(handle, path, tell, wait_s)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield handle
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, tell: Tell, wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    while not _try(handle):
        owner = path.read_text(encoding="utf-8").strip() or "unknown"
        if time.monotonic() > deadline_s:
            raise ModelError(
                f"another process (pid {owner}) has held the lock for {wait_s:.0f} s",
                path=str(path),
                remedy="end that process and try again",
            )
        tell(Step(f"waiting for another process (pid {owner}) that prepares the model"))
        time.sleep(POLL_S)


def _try(handle: int) -> bool:
    """Take the lock if nobody holds it; whether it was taken."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
