"""The one door to a drive's bytes: every read, write and sync of a slab passes here.

A stand-in that counts, records, kills or fails is a subclass, made by the `opener` that
DriveTier is given. Reads and writes raise OSError as the system does; the tier types it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pagoda.core import native
from pagoda.core.errors import DirectoryLocked, TierFault
from pagoda.machine.buffers import aligned_buffer
from pagoda.tiers.drive.lock import exclusive
from pagoda.tiers.drive.superblock import PAGE_BYTES

TIER = "drive"
_RUN_PIECES = 512  # below IOV_MAX, which is 1024 on Linux

_O_DIRECT = getattr(os, "O_DIRECT", 0)
_datasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class SlabFile:
    """A slab, open for reading and writing, and nobody else's while it is.

    The table goes through the page cache, payloads past it where possible (`direct` says
    whether; "auto", "on" or "off" asks for it). Raises DirectoryLocked when another engine
    has it open: its lock file may have been deleted.
    """

    def __init__(self, path: Path, direct: str) -> None:
        self._table_fd = self._payload_fd = -1
        try:
            self._table_fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            _own(self._table_fd, path)
            self._payload_fd, self.direct = _open_payload(path, direct)
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        return self._table_fd < 0

    def read_table(self, size_bytes: int, offset: int) -> bytes:
        """Bytes of the superblock or the header table; fewer at the end of the file."""
        return os.pread(self._table_fd, size_bytes, offset)

    def write_table(self, data: bytes, offset: int) -> int:
        """Overwrite a piece of the superblock or the header table; returns bytes written."""
        return os.pwrite(self._table_fd, data, offset)

    def read_payloads(self, into: Sequence[memoryview], offsets: Sequence[int]) -> list[int]:
        """Fill each buffer from its place; returns bytes read, for each."""
        if native.TABLES is not None:
            counts: list[int] = native.TABLES.read_payloads(self._payload_fd, into, offsets)
            return counts
        return list(self._read_runs(into, offsets))

    def _read_runs(self, into: Sequence[memoryview], offsets: Sequence[int]) -> Iterator[int]:
        """What lies behind each other is read at once."""
        ends = [offset + len(buffer) for offset, buffer in zip(offsets, into, strict=True)]
        first = 0
        for last in range(1, len(into) + 1):
            joined = last < len(into) and offsets[last] == ends[last - 1]
            if joined and last - first < _RUN_PIECES:
                continue
            left = os.preadv(self._payload_fd, into[first:last], offsets[first])
            for buffer in into[first:last]:
                count = min(left, len(buffer))
                left -= count
                yield count
            first = last

    def write_payloads(self, buffers: Sequence[memoryview], offset: int) -> int:
        """Fill consecutive slots from buffers; returns bytes written."""
        return os.pwritev(self._payload_fd, buffers, offset)

    def sync(self) -> None:
        """Make every write that has returned durable."""
        _datasync(self._table_fd)

    def close(self) -> None:
        """Let go of the file, whatever is durable; safe to call twice."""
        open_fds = {self._table_fd, self._payload_fd} - {-1}
        self._table_fd = self._payload_fd = -1
        for fd in open_fds:
            os.close(fd)


Opener = Callable[[Path, str], SlabFile]  # the slab's path, and whether to go past the page cache


def _own(fd: int, path: Path) -> None:
    if not exclusive(fd):
        raise DirectoryLocked(
            f"{path} belongs to a running engine, whose lock file was deleted",
            tier=TIER,
            path=str(path.parent),
            owner="unknown process",
            remedy="stop that engine, or give this one its own directory (--drive-path)",
        )


def _open_payload(path: Path, direct: str) -> tuple[int, bool]:
    """A descriptor for payloads, and whether it goes past the page cache."""
    flags = os.O_RDWR | os.O_CLOEXEC
    if direct != "off" and _O_DIRECT:
        with suppress(OSError):
            fd = os.open(path, flags | _O_DIRECT)
            if _direct_reads(fd):
                return fd, True
            os.close(fd)
    if direct == "on":
        raise TierFault(
            f"{path}: this file system has no O_DIRECT", tier=TIER, remedy="set drive.direct = auto"
        )
    return os.open(path, flags), False


def _direct_reads(fd: int) -> bool:
    """Some file systems accept the flag and then refuse the read."""
    try:
        return os.preadv(fd, [aligned_buffer(PAGE_BYTES)], 0) == PAGE_BYTES
    except OSError:
        return False
