"""One drive: a preallocated slab, read and written past the page cache where possible.

Durability, in order: payloads are written, `fdatasync` makes them durable, then their
headers are written. Headers become durable with the next commit's `fdatasync`, or at
close; a power cut before that loses those blocks and no others. Killing the process loses
nothing that was committed. Blocks that are freed stay gone: their erased headers are
durable when `free` returns. A header that `reserve` erased may come back after a power cut,
beside a newer payload: its digest then refuses it.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagoda.core.errors import CapacityError, TierFault
from pagoda.machine.buffers import address, aligned_buffer
from pagoda.seal.header import EMPTY
from pagoda.tiers.drive import lock, slab
from pagoda.tiers.drive.file import TIER, Opener, SlabFile
from pagoda.tiers.drive.lock import DirectoryLock
from pagoda.tiers.drive.oserrors import typed_errors
from pagoda.tiers.drive.superblock import PAGE_BYTES, Layout
from pagoda.tiers.port import Geometry

_RUN_BLOCKS = 512  # below IOV_MAX, which is 1024 on Linux


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveConfig:
    """One drive directory. Sizes in bytes; `direct` is "auto", "on" or "off"; `name` tells the
    drive from others of the same store, `owner` the engine from others on this host."""

    directory: Path
    capacity_bytes: int
    slot_bytes: int
    free_floor_bytes: int = 2 << 30
    direct: str = "auto"
    name: str = TIER
    owner: lock.Owner = lock.PAGODA


def look(config: DriveConfig, taken: Counter[int]) -> None:
    """Raise what DriveTier would raise for what is there, and change nothing: a foreign, newer
    or other slab or lock, another engine's directory, a path that leads nowhere, no space.

    `taken` is how many bytes drives that were looked at before will take, by device number.
    """
    wanted = slab.plan(config.directory, config.capacity_bytes, slot_bytes=config.slot_bytes)
    found = _existing(config.directory / slab.SLAB_NAME, wanted)
    with typed_errors(config.name, str(config.directory)):
        standing = _standing(config.directory)
        if not standing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(standing, os.W_OK | os.X_OK) and not _read_only(standing):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        lock.look(config.directory, tier=config.name, owner=config.owner)
        if found is None and not _read_only(standing):
            device = standing.stat().st_dev
            taken[device] += wanted.size_bytes
            slab.check_space(standing, taken[device], config.free_floor_bytes)


def _read_only(directory: Path) -> bool:
    """Whether it is the file system that takes no writes, which a drive that fails does."""
    return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)


def _standing(directory: Path) -> Path:
    """The directory, or as much of its path as is there."""
    return next(path for path in (directory, *directory.absolute().parents) if path.exists())


class DriveTier:
    """A Tier over a slab file. Raises the TierError kinds of core.errors."""

    def __init__(self, config: DriveConfig, *, opener: Opener = SlabFile) -> None:
        self.name = config.name
        self.path = config.directory / slab.SLAB_NAME
        wanted = slab.plan(config.directory, config.capacity_bytes, slot_bytes=config.slot_bytes)
        _existing(self.path, wanted)  # what will not do is refused before anything is written
        with typed_errors(self.name, str(config.directory)):
            config.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = DirectoryLock(config.directory, tier=self.name, owner=config.owner)
        try:
            self._layout = _existing(self.path, wanted) or _create(config, wanted, opener)
            with typed_errors(self.name, str(self.path)):
                self._file = _open_mended(self.path, config.direct, self._layout, opener)
        except BaseException:
            self._lock.release()
            raise
        self.direct = self._file.direct
        self.identity = self._layout.slab_id
        self.geometry = Geometry(
            slots=self._layout.slots,
            slot_bytes=self._layout.slot_bytes,
            alignment_bytes=PAGE_BYTES if self.direct else 1,
        )
        self.bounced = 0  # payloads copied because their buffer was not aligned

    def reserve(self, slots: Sequence[int]) -> None:
        self._write_headers(slots, [EMPTY] * len(slots))

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        whole = [self._aligned_copy(payload) for payload in payloads]
        for first, last in _runs(slots, self._fills(whole)):
            buffers = whole[first:last]
            with typed_errors(self.name, str(self.path)):
                offset = self._layout.payload_at(slots[first])
                written = self._file.write_payloads(buffers, offset)
            self._check_written(written, sum(len(buffer) for buffer in buffers))

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        self._sync()
        self._write_headers(slots, headers)

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        buffers = [self._read_target(buffer) for buffer in into]
        with typed_errors(self.name, str(self.path)):
            places = [self._layout.payload_at(slot) for slot in slots]
            found = self._file.read_payloads(buffers, places)
        counts = [min(count, len(buffer)) for count, buffer in zip(found, into, strict=True)]
        for buffer, target in zip(into, buffers, strict=True):
            if target is not buffer:
                buffer[:] = target[: len(buffer)]
        return counts

    def free(self, slots: Sequence[int]) -> None:
        if slots:
            self._write_headers(slots, [EMPTY] * len(slots))
            self._sync()

    def scan(self) -> Iterator[tuple[int, bytes]]:
        return slab.headers(self._file.read_table, self._layout, path=self.path)

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self._sync()
        finally:
            self._file.close()
            self._lock.release()

    def _sync(self) -> None:
        with typed_errors(self.name, str(self.path)):
            self._file.sync()

    def _write_headers(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        for first, last in _runs(slots, [True] * len(slots)):
            data = b"".join(headers[first:last])
            with typed_errors(self.name, str(self.path)):
                written = self._file.write_table(data, self._layout.header_at(slots[first]))
            self._check_written(written, len(data))

    def _check_written(self, written: int, expected: int) -> None:
        if written != expected:
            raise TierFault(
                f"{self.path}: {written} of {expected} bytes written",
                tier=self.name,
                remedy="see the system's log for this drive",
            )

    def _fills(self, buffers: Sequence[memoryview]) -> list[bool]:
        """Which buffers fill their slots, so that the next slot's can follow in the same I/O."""
        return [len(buffer) == self._layout.slot_bytes for buffer in buffers]

    def _fits(self, buffer: memoryview) -> bool:
        """Whether O_DIRECT (or the page cache) takes this buffer as it is."""
        unit = self.geometry.alignment_bytes
        return len(buffer) % unit == 0 and address(buffer) % unit == 0

    def _aligned_copy(self, payload: memoryview) -> memoryview:
        if self._fits(payload):
            return payload
        copy = self._bounce(len(payload))
        copy[: len(payload)] = payload
        return copy

    def _read_target(self, buffer: memoryview) -> memoryview:
        return buffer if self._fits(buffer) else self._bounce(len(buffer))

    def _bounce(self, size_bytes: int) -> memoryview:
        self.bounced += 1
        unit = self.geometry.alignment_bytes
        padded = -(-size_bytes // unit) * unit
        return memoryview(aligned_buffer(padded))[:padded]


def _runs(slots: Sequence[int], whole: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """[first, last) ranges of `slots` that one I/O can move: they lie behind each other in the
    slab, and all but the last are `whole`."""
    first = 0
    for index in range(1, len(slots) + 1):
        joined = (
            index < len(slots)
            and slots[index] == slots[index - 1] + 1
            and whole[index - 1]
            and index - first < _RUN_BLOCKS
        )
        if not joined:
            yield first, index
            first = index


def _existing(path: Path, wanted: Layout) -> Layout | None:
    """The layout of the slab that is there. Raises CapacityError when it is not as wanted."""
    if not os.path.lexists(path):  # a link to a disk that is not mounted is kept
        return None
    found = slab.read_layout(path)
    if (found.slots, found.slot_bytes) != (wanted.slots, wanted.slot_bytes):
        raise CapacityError(
            f"{path} has {found.slots} slots of {found.slot_bytes} bytes; these settings ask "
            f"for {wanted.slots} of {wanted.slot_bytes}",
            tier=TIER,
            asked_bytes=wanted.slots * wanted.slot_bytes,
            limit_bytes=found.slots * found.slot_bytes,
            remedy=f"set drive.capacity back, choose another drive.path, or delete {path}",
        )
    return found


def _create(config: DriveConfig, wanted: Layout, opener: Opener) -> Layout:
    slab.create(
        config.directory, layout=wanted, free_floor_bytes=config.free_floor_bytes, opener=opener
    )
    return wanted


def _open_mended(path: Path, direct: str, layout: Layout, opener: Opener) -> SlabFile:
    """The slab's file, its superblocks whole."""
    file = opener(path, direct)
    try:
        slab.mend(file, layout)
    except BaseException:
        file.close()
        raise
    return file
