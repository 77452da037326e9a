"""The slab file: superblock, header table, payloads (docs/design/format.md, final).

0          superblock, one page
4096       header table: slots × 256 bytes, padded to a page
payload    slots × slot_bytes, from the next multiple of 4 MiB
"""

from __future__ import annotations

import os
import secrets
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagoda.core.errors import CapacityError, FormatError
from pagoda.seal.digest import digest
from pagoda.seal.header import EMPTY, HEADER_BYTES
from pagoda.tiers.drive.oserrors import typed_errors

TIER = "drive"
SLAB_NAME = "slab.pagoda"
MAGIC = b"PGDASLAB"
VERSION = 1
PAGE_BYTES = 4096
STRIPE_BYTES = 4 << 20

_SUPER = struct.Struct("<8sIIQQQQ16sQ")
_SUPER_BODY_BYTES = PAGE_BYTES - 16
_SCAN_SLOTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where things lie in a slab of `slots` slots of `slot_bytes` (a multiple of 4 KiB)."""

    slots: int
    slot_bytes: int
    slab_id: bytes

    @property
    def table_offset(self) -> int:
        return PAGE_BYTES

    @property
    def payload_offset(self) -> int:
        return _round_up(PAGE_BYTES + self.slots * HEADER_BYTES, STRIPE_BYTES)

    @property
    def size_bytes(self) -> int:
        return self.payload_offset + self.slots * self.slot_bytes

    def header_at(self, slot: int) -> int:
        """File offset of a slot's header."""
        return self.table_offset + slot * HEADER_BYTES

    def payload_at(self, slot: int) -> int:
        """File offset of a slot's payload."""
        return self.payload_offset + slot * self.slot_bytes

    def superblock(self, *, created_ms: int) -> bytes:
        """The slab's first page."""
        fields = _SUPER.pack(
            MAGIC,
            VERSION,
            HEADER_BYTES,
            self.slots,
            self.slot_bytes,
            self.table_offset,
            self.payload_offset,
            self.slab_id,
            created_ms,
        )
        body = fields.ljust(_SUPER_BODY_BYTES, b"\0")
        return body + digest(body)


def slots_for(capacity_bytes: int, slot_bytes: int) -> int:
    """How many slots a slab of at most `capacity_bytes` has; its table counts too."""
    slots = capacity_bytes // (slot_bytes + HEADER_BYTES)
    while slots > 0:
        if Layout(slots=slots, slot_bytes=slot_bytes, slab_id=b"").size_bytes <= capacity_bytes:
            return slots
        slots -= 1
    return 0


def create(directory: Path, *, slots: int, slot_bytes: int, free_floor_bytes: int) -> Layout:
    """Preallocate a slab under a temporary name, then give it its name.

    Raises CapacityError when the file system would be left with less than
    `free_floor_bytes`; nothing is left behind then.
    """
    assert slot_bytes % PAGE_BYTES == 0, "slots are whole pages"
    layout = Layout(slots=slots, slot_bytes=slot_bytes, slab_id=secrets.token_bytes(16))
    path = directory / SLAB_NAME
    unnamed = directory / f"{SLAB_NAME}.new"
    with typed_errors(TIER, str(unnamed)):
        unnamed.unlink(missing_ok=True)
        _check_space(directory, layout.size_bytes, free_floor_bytes)
        fd = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _preallocate(fd, layout.size_bytes)
            os.pwrite(fd, layout.superblock(created_ms=time.time_ns() // 1_000_000), 0)
            os.fsync(fd)
            unnamed.rename(path)
            _sync_directory(directory)
        except OSError:
            unnamed.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
    return layout


def read_layout(path: Path) -> Layout:
    """Check a slab's superblock; raises FormatError for a foreign, newer or damaged file."""
    with typed_errors(TIER, str(path)):
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            raise _format_error(path, "is not a file", "choose another directory")
        with path.open("rb") as file:
            page = file.read(PAGE_BYTES)
            size_bytes = os.fstat(file.fileno()).st_size
    if len(page) < PAGE_BYTES or page[:8] != MAGIC:
        raise _format_error(path, "is not a Pagoda slab", "choose another directory")
    fields = _SUPER.unpack_from(page)
    if fields[1] != VERSION:
        raise _format_error(
            path,
            f"has format version {fields[1]}; this Pagoda reads {VERSION}",
            "use the Pagoda that wrote it, or another directory",
        )
    layout = Layout(slots=fields[3], slot_bytes=fields[4], slab_id=fields[7])
    body = page[:_SUPER_BODY_BYTES]
    sound = digest(body) == page[_SUPER_BODY_BYTES:] and fields[2] == HEADER_BYTES
    if not sound or (fields[5], fields[6]) != (layout.table_offset, layout.payload_offset):
        raise _format_error(path, "has a damaged superblock", "delete it; its blocks are lost")
    if size_bytes < layout.size_bytes:
        raise _format_error(
            path,
            f"is cut short: {size_bytes} of {layout.size_bytes} bytes",
            "delete it; its blocks are lost",
        )
    return layout


def headers(fd: int, layout: Layout, *, path: Path) -> Iterator[tuple[int, bytes]]:
    """(slot, header) of every place in the table that is not empty, in one sequential pass."""
    for first in range(0, layout.slots, _SCAN_SLOTS):
        count = min(_SCAN_SLOTS, layout.slots - first)
        with typed_errors(TIER, str(path)):
            piece = os.pread(fd, count * HEADER_BYTES, layout.header_at(first))
        if len(piece) < count * HEADER_BYTES:
            raise _format_error(path, "is cut short", "delete it; its blocks are lost")
        for index in range(count):
            header = piece[index * HEADER_BYTES : (index + 1) * HEADER_BYTES]
            if header != EMPTY:
                yield first + index, header


def _check_space(directory: Path, size_bytes: int, free_floor_bytes: int) -> None:
    space = os.statvfs(directory)
    usable = space.f_bavail * space.f_frsize - free_floor_bytes
    if size_bytes > usable:
        raise CapacityError(
            f"{directory}: a slab of {size_bytes} bytes does not fit: {max(usable, 0)} bytes are "
            f"free above the floor of {free_floor_bytes}",
            tier=TIER,
            asked_bytes=size_bytes,
            limit_bytes=max(usable, 0),
            remedy="lower drive.capacity or drive.free_floor, or set drive.path to another disk",
        )


def _preallocate(fd: int, size_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size_bytes)
    else:  # macOS
        os.ftruncate(fd, size_bytes)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _format_error(path: Path, what: str, remedy: str) -> FormatError:
    return FormatError(f"{path} {what}", tier=TIER, path=str(path), remedy=remedy)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
