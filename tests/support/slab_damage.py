"""Damage to slabs at rest, done while an engine has them open: payloads change, headers do not."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

from pagoda.tiers.drive import slab
from pagoda.tiers.drive.superblock import Layout


def change_payloads(directory: Path, *, share: float = 1.0, seed: int = 0) -> int:
    """Change every second byte of a share of what is stored in the slabs below a directory, so
    that numbers of two or four bytes get other exponents and stay numbers. How many it were."""
    rng = random.Random(seed)
    changed = 0
    for path in directory.rglob(slab.SLAB_NAME):
        layout = slab.read_layout(path)
        with path.open("r+b") as file:
            for slot in _used(file.fileno(), path, layout):
                if rng.random() < share:
                    _change(file.fileno(), layout, slot)
                    changed += 1
            os.fsync(file.fileno())
    return changed


class Damage:
    """Hurts one slab again and again, at places drawn by a generator with a seed."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._path = directory / slab.SLAB_NAME
        self._layout = slab.read_layout(self._path)
        self._rng = random.Random(seed)

    def flip(self, blocks: int, *, bits: int) -> None:
        """Turn bits of that many stored blocks over."""
        with self._path.open("r+b") as file:
            for slot in self._rng.sample(self._stored(file.fileno()), blocks):
                for _ in range(bits):
                    at = self._rng.randrange(self._layout.slot_bytes) + self._layout.payload_at(
                        slot
                    )
                    [byte] = os.pread(file.fileno(), 1, at)
                    os.pwrite(file.fileno(), bytes([byte ^ 1 << self._rng.randrange(8)]), at)

    def cut(self) -> None:
        """Cut the file off in the middle of what is stored."""
        with self._path.open("r+b") as file:
            slot = self._rng.choice(self._stored(file.fileno()))
            file.truncate(self._layout.payload_at(slot) + self._layout.slot_bytes // 2)

    def grow(self) -> None:
        """Give the file its size back, with zeros."""
        with self._path.open("r+b") as file:
            file.truncate(self._layout.size_bytes)

    def _stored(self, fd: int) -> list[int]:
        return list(_used(fd, self._path, self._layout))


def _used(fd: int, path: Path, layout: Layout) -> Iterator[int]:
    def read(size_bytes: int, offset: int) -> bytes:
        return os.pread(fd, size_bytes, offset)

    return (slot for slot, _ in slab.headers(read, layout, path=path))


def _change(fd: int, layout: Layout, slot: int) -> None:
    at = layout.payload_at(slot)
    payload = bytearray(os.pread(fd, layout.slot_bytes, at))
    payload[1::2] = bytes(byte ^ 0x01 for byte in payload[1::2])
    os.pwrite(fd, payload, at)
