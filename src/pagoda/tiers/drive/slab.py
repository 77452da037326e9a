"""The slab file: superblock, header table, payloads (docs/design/format.md, final).

0          superblock, one page
4096       header table: slots × 256 bytes
           …
-4096      the superblock's copy, in the page before the payloads
payload    slots × slot_bytes, from a multiple of 4 MiB
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pagoda.core.errors import CapacityError, FormatError
from pagoda.seal.header import HEADER_BYTES
from pagoda.tiers.drive import superblock
from pagoda.tiers.drive.file import TIER, Opener, SlabFile
from pagoda.tiers.drive.oserrors import typed_errors
from pagoda.tiers.drive.superblock import PAGE_BYTES, STRIPE_BYTES, VERSION, Flaw, Layout

SLAB_NAME = "slab.pagoda"
_SCAN_SLOTS = 4096
_COPY_STRIPES = 1024  # how far to look for a superblock's copy: tables of up to 4 GiB


def plan(directory: Path, capacity_bytes: int, *, slot_bytes: int) -> Layout:
    """A new slab of at most `capacity_bytes`, table and all. Raises CapacityError when not
    even one slot fits; `directory` is what it then names."""

    def layout_of(slots: int) -> Layout:
        return Layout(slots=slots, slot_bytes=slot_bytes, slab_id=slab_id)

    slab_id = secrets.token_bytes(16)
    most = capacity_bytes // (slot_bytes + HEADER_BYTES)
    fitting = bisect_right(
        range(1, most + 1), capacity_bytes, key=lambda n: layout_of(n).size_bytes
    )
    layout = layout_of(max(1, fitting))
    if layout.size_bytes > capacity_bytes:
        raise CapacityError(
            f"{directory}: a drive.capacity of {capacity_bytes} bytes holds no block of "
            f"{slot_bytes} bytes: with its table, a slab for one takes {layout.size_bytes}",
            tier=TIER,
            asked_bytes=layout.size_bytes,
            limit_bytes=capacity_bytes,
            remedy=f"raise drive.capacity to {layout.size_bytes} bytes or more",
        )
    return layout


def create(
    directory: Path, *, layout: Layout, free_floor_bytes: int, opener: Opener = SlabFile
) -> None:
    """Preallocate a slab under a temporary name, then give it its name.

    Raises CapacityError when the file system would be left with less than
    `free_floor_bytes`; nothing is left behind then.
    """
    assert layout.slot_bytes % PAGE_BYTES == 0, "slots are whole pages"
    unnamed = directory / f"{SLAB_NAME}.new"
    with typed_errors(TIER, str(unnamed)):
        unnamed.unlink(missing_ok=True)
        check_space(directory, layout.size_bytes, free_floor_bytes)
        try:
            _preallocate(unnamed, layout.size_bytes)
            _write_superblocks(opener(unnamed, "off"), layout)
            unnamed.rename(directory / SLAB_NAME)
            _sync_directory(directory)
        except OSError:
            unnamed.unlink(missing_ok=True)
            raise


def read_layout(path: Path) -> Layout:
    """What a slab's superblock says; raises FormatError for a foreign, newer or damaged file."""
    with typed_errors(TIER, str(path)):
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            raise _format_error(path, "is not a file", "choose another directory")
        with path.open("rb") as file:
            layout = _read_superblock(file, path)
            size_bytes = os.fstat(file.fileno()).st_size
    if size_bytes < layout.size_bytes:
        raise _format_error(
            path,
            f"is cut short: {size_bytes} of {layout.size_bytes} bytes",
            "delete it; its blocks are lost",
        )
    return layout


def mend(file: SlabFile, layout: Layout) -> None:
    """Write the superblock and its copy anew from each other, if one of them is damaged."""
    places = (0, layout.copy_offset)
    pages = [file.read_table(PAGE_BYTES, place) for place in places]
    sound = next(page for page in pages if superblock.unpack(page) == layout)
    for place, page in zip(places, pages, strict=True):
        if page != sound:
            file.write_table(sound, place)


def _read_superblock(file: BinaryIO, path: Path) -> Layout:
    page = file.read(PAGE_BYTES)
    found = superblock.unpack(page)
    if found is Flaw.VERSION:
        raise _format_error(
            path,
            f"has format version {superblock.version_of(page)}; this Pagoda reads {VERSION}",
            "use the Pagoda that wrote it, or another directory",
        )
    if isinstance(found, Flaw):
        copy = _find_copy(file)
        if copy is None and found is Flaw.FOREIGN:
            raise _format_error(path, "is not a Pagoda slab", "choose another directory")
        if copy is None:
            raise _format_error(path, "has a damaged superblock", "delete it; its blocks are lost")
        return copy
    return found


def _find_copy(file: BinaryIO) -> Layout | None:
    """The copy of a damaged superblock: in the last page of a stripe, where it says it is."""
    for stripe in range(1, _COPY_STRIPES + 1):
        place = stripe * STRIPE_BYTES - PAGE_BYTES
        file.seek(place)
        page = file.read(PAGE_BYTES)
        if len(page) < PAGE_BYTES:
            return None
        found = superblock.unpack(page)
        if isinstance(found, Layout) and found.copy_offset == place:
            return found
    return None


Read = Callable[[int, int], bytes]  # of how many bytes, from which offset


def headers(read: Read, layout: Layout, *, path: Path) -> Iterator[tuple[int, bytes]]:
    """(slot, header) of every place in the table that is not empty, in one sequential pass."""
    for first in range(0, layout.slots, _SCAN_SLOTS):
        size_bytes = min(_SCAN_SLOTS, layout.slots - first) * HEADER_BYTES
        with typed_errors(TIER, str(path)):
            piece = read(size_bytes, layout.header_at(first))
        if len(piece) < size_bytes:
            raise _format_error(path, "is cut short", "delete it; its blocks are lost")
        words = np.frombuffer(piece, dtype=np.uint64).reshape(-1, HEADER_BYTES // 8)
        for index in np.flatnonzero(words.any(axis=1)).tolist():
            yield first + index, piece[index * HEADER_BYTES : (index + 1) * HEADER_BYTES]


def check_space(directory: Path, size_bytes: int, free_floor_bytes: int) -> None:
    """Raises CapacityError when the file system would be left with less than the floor."""
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


def _preallocate(path: Path, size_bytes: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size_bytes)
        else:  # macOS
            os.ftruncate(fd, size_bytes)
        os.fsync(fd)  # its size: fdatasync alone need not keep it
    finally:
        os.close(fd)


def _write_superblocks(file: SlabFile, layout: Layout) -> None:
    page = superblock.pack(layout, created_ms=time.time_ns() // 1_000_000)
    try:
        file.write_table(page, 0)
        file.write_table(page, layout.copy_offset)
        file.sync()
    finally:
        file.close()


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _format_error(path: Path, what: str, remedy: str) -> FormatError:
    return FormatError(f"{path} {what}", tier=TIER, path=str(path), remedy=remedy)
