"""One engine a directory: an advisory lock whose file says who holds it.

An engine with several slabs below one directory, such as one a rank, holds that directory as
well: its own parts share it, and no other engine gets it.

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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pagoda.core.errors import DirectoryLocked, FormatError
from pagoda.tiers.drive.oserrors import typed_errors

LOCK_NAME = "lock"

_SIGNED = b'{"pid"'  # how a signature begins
_NOFOLLOW = os.O_NOFOLLOW | os.O_NONBLOCK  # neither another file by a link, nor wait on a pipe


@dataclass(frozen=True, slots=True)
class Owner:
    """Who takes a directory. `engine` is its kind, for messages; `levels` says how far above a
    slab's directory lies the one that all slabs of this engine are in, 0: it has this one."""

    engine: str = "Pagoda"
    levels: int = 0

    def above(self, directory: Path) -> Path | None:
        """The directory of all its slabs; None when it is the slab's own."""
        return directory.parents[self.levels - 1] if self.levels else None


PAGODA = Owner()


class DirectoryLock:
    """Ownership of a slab's directory, and a share in the one of all the engine's slabs.

    Raises DirectoryLocked naming the owner, FormatError when the file is somebody else's.
    """

    def __init__(self, directory: Path, *, tier: str, owner: Owner = PAGODA) -> None:
        self._held: list[_Held] = []
        try:
            for place, shared in _places(directory, owner):
                self._held.append(_Held(place, tier=tier, engine=owner.engine, shared=shared))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the directories back; safe to call twice."""
        while self._held:
            self._held.pop().release()


def _places(directory: Path, owner: Owner) -> Iterator[tuple[Path, bool]]:
    """The directories to lock, and whether other slabs of the engine may have them, too."""
    above = owner.above(directory)
    if above is not None:
        yield above, True
    yield directory, False


class _Held:
    """The lock of one directory."""

    def __init__(self, directory: Path, *, tier: str, engine: str, shared: bool) -> None:
        path = directory / LOCK_NAME
        with typed_errors(tier, str(path)):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | _NOFOLLOW, 0o600)
        try:
            _require(self._fd, directory, tier, shared=shared)
        except BaseException:
            os.close(self._fd)
            raise
        self._shared = shared
        self._sign(engine)

    def release(self) -> None:
        """Give the directory back."""
        with suppress(OSError):  # a drive that died keeps the name; the lock goes with the fd
            if not self._shared:  # another part of the engine may still have it
                os.ftruncate(self._fd, 0)
        os.close(self._fd)

    def _sign(self, engine: str) -> None:
        owner = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": int(time.time()),
            "engine": engine,
        }
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(owner).encode(), 0)


def look(directory: Path, *, tier: str, owner: Owner = PAGODA) -> None:
    """Raise what taking the lock would raise for the files that are there; changes nothing."""
    for place, shared in _places(directory, owner):
        _look(place, tier, shared=shared)


def _look(directory: Path, tier: str, *, shared: bool) -> None:
    path = directory / LOCK_NAME
    with typed_errors(tier, str(path)):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _NOFOLLOW)
        except FileNotFoundError:
            return
    try:
        _require(fd, directory, tier, shared=shared)
    finally:
        os.close(fd)


def _require(fd: int, directory: Path, tier: str, *, shared: bool) -> None:
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
        if _lock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            return
    owner = _owner(fd)
    raise DirectoryLocked(
        f"{directory} belongs to another running engine: {owner}",
        tier=tier,
        path=str(directory),
        owner=owner,
        remedy="give each engine its own directory (drive.path), or stop that one",
    )


def exclusive(fd: int) -> bool:
    """Lock an open file for as long as it stays open; False when somebody else has it. Raises
    OSError where the file system knows no locks."""
    return _lock(fd, fcntl.LOCK_EX)


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
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
        engine = owner.get("engine")  # earlier versions did not tell
        return f"{f'{engine}, ' if engine else ''}process {owner['pid']} on {owner['host']}"
    except (ValueError, KeyError, TypeError):
        return "unknown process"
