"""One drive: a preallocated slab, read and written past the page cache where possible.

Durability, in order: payloads are written, `fdatasync` makes them durable, then their
headers are written. Headers become durable with the next commit's `fdatasync`, or at
close; a power cut before that loses those blocks and no others. Killing the process loses
nothing that was committed. After erasing a header, an old one may come back after a power
cut beside a newer payload: its digest then refuses it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagoda.core.errors import CapacityError, TierFault
from pagoda.machine.buffers import address, aligned_buffer
from pagoda.seal.header import EMPTY
from pagoda.tiers.drive import slab
from pagoda.tiers.drive.lock import DirectoryLock
from pagoda.tiers.drive.oserrors import typed_errors
from pagoda.tiers.drive.superblock import PAGE_BYTES, Layout
from pagoda.tiers.port import Geometry

_O_DIRECT = getattr(os, "O_DIRECT", 0)
_RUN_BLOCKS = 512  # below IOV_MAX, which is 1024 on Linux


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveConfig:
    """One drive directory. Sizes in bytes; `direct` is "auto", "on" or "off"."""

    directory: Path
    capacity_bytes: int
    slot_bytes: int
    free_floor_bytes: int = 2 << 30
    direct: str = "auto"


class DriveTier:
    """A Tier over a slab file. Raises the TierError kinds of core.errors."""

    name = slab.TIER

    def __init__(self, config: DriveConfig) -> None:
        self.path = config.directory / slab.SLAB_NAME
        with typed_errors(self.name, str(config.directory)):
            config.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = DirectoryLock(config.directory, tier=self.name)
        self._table_fd = self._payload_fd = -1
        try:
            self._layout = _open_layout(config, self.path)
            with typed_errors(self.name, str(self.path)):
                self._table_fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
                slab.mend(self._table_fd, self._layout)
                self._payload_fd, self.direct = _open_payload(self.path, config.direct)
        except BaseException:
            self.close()
            raise
        self.identity = self._layout.slab_id
        alignment = PAGE_BYTES if self.direct else 1
        self.geometry = Geometry(
            slots=self._layout.slots,
            slot_bytes=self._layout.slot_bytes,
            alignment_bytes=alignment,
        )
        self.bounced = 0  # payloads copied because their buffer was not aligned

    def reserve(self, slots: Sequence[int]) -> None:
        self.free(slots)

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        whole = [self._aligned_copy(payload) for payload in payloads]
        for first, last in self._runs(slots, whole):
            buffers = whole[first:last]
            expected = sum(len(buffer) for buffer in buffers)
            with typed_errors(self.name, str(self.path)):
                offset = self._layout.payload_at(slots[first])
                written = os.pwritev(self._payload_fd, buffers, offset)
            if written != expected:
                raise TierFault(
                    f"{self.path}: {written} of {expected} bytes written", tier=self.name
                )

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        with typed_errors(self.name, str(self.path)):
            _datasync(self._payload_fd)
            self._write_headers(slots, headers)

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        counts: list[int] = []
        buffers = [self._read_target(buffer) for buffer in into]
        for first, last in self._runs(slots, buffers):
            with typed_errors(self.name, str(self.path)):
                offset = self._layout.payload_at(slots[first])
                left = os.preadv(self._payload_fd, buffers[first:last], offset)
            for index in range(first, last):
                counts.append(max(0, min(left, len(into[index]))))
                left -= len(buffers[index])
        for buffer, target in zip(into, buffers, strict=True):
            if target is not buffer:
                buffer[:] = target[: len(buffer)]
        return counts

    def free(self, slots: Sequence[int]) -> None:
        with typed_errors(self.name, str(self.path)):
            self._write_headers(slots, [EMPTY] * len(slots))

    def scan(self) -> Iterator[tuple[int, bytes]]:
        return slab.headers(self._table_fd, self._layout, path=self.path)

    def close(self) -> None:
        open_fds = {self._table_fd, self._payload_fd} - {-1}
        self._table_fd = self._payload_fd = -1
        try:
            with typed_errors(self.name, str(self.path)):
                for fd in open_fds:
                    _datasync(fd)
        finally:
            for fd in open_fds:
                os.close(fd)
            self._lock.release()

    def _write_headers(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        for slot, header in zip(slots, headers, strict=True):
            os.pwrite(self._table_fd, header, self._layout.header_at(slot))

    def _runs(
        self, slots: Sequence[int], buffers: Sequence[memoryview]
    ) -> Iterator[tuple[int, int]]:
        """[first, last) ranges that lie behind each other in the slab and fill their slots."""
        first = 0
        for index in range(1, len(slots) + 1):
            joined = (
                index < len(slots)
                and slots[index] == slots[index - 1] + 1
                and len(buffers[index - 1]) == self._layout.slot_bytes
                and index - first < _RUN_BLOCKS
            )
            if not joined:
                yield first, index
                first = index

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


def _open_layout(config: DriveConfig, path: Path) -> Layout:
    """The slab's layout: of the file that is there, or of a new one."""
    slots = slab.slots_for(config.capacity_bytes, config.slot_bytes)
    if slots == 0:
        raise CapacityError(
            f"drive.capacity of {config.capacity_bytes} bytes holds no block of "
            f"{config.slot_bytes} bytes",
            tier=slab.TIER,
            asked_bytes=config.slot_bytes,
            limit_bytes=config.capacity_bytes,
            remedy="raise drive.capacity",
        )
    if not os.path.lexists(path):  # a link to a disk that is not mounted is kept
        return slab.create(
            config.directory,
            slots=slots,
            slot_bytes=config.slot_bytes,
            free_floor_bytes=config.free_floor_bytes,
        )
    layout = slab.read_layout(path)
    if (layout.slots, layout.slot_bytes) != (slots, config.slot_bytes):
        raise CapacityError(
            f"{path} has {layout.slots} slots of {layout.slot_bytes} bytes; these settings ask "
            f"for {slots} of {config.slot_bytes}",
            tier=slab.TIER,
            asked_bytes=slots * config.slot_bytes,
            limit_bytes=layout.slots * layout.slot_bytes,
            remedy=f"set drive.capacity back, choose another drive.path, or delete {path}",
        )
    return layout


def _open_payload(path: Path, direct: str) -> tuple[int, bool]:
    """A descriptor for payloads, and whether it goes past the page cache."""
    flags = os.O_RDWR | os.O_CLOEXEC
    if direct != "off" and _O_DIRECT:
        try:
            fd = os.open(path, flags | _O_DIRECT)
        except OSError:
            if direct == "on":
                raise
        else:
            if _direct_reads(fd) or direct == "on":
                return fd, True
            os.close(fd)
    return os.open(path, flags), False


def _direct_reads(fd: int) -> bool:
    """Some file systems accept the flag and then refuse the read."""
    try:
        return os.preadv(fd, [aligned_buffer(PAGE_BYTES)], 0) == PAGE_BYTES
    except OSError:
        return False


_datasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
