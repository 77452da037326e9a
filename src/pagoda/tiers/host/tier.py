"""Slots in one region of memory, made once at the start; its headers end with the process."""

from __future__ import annotations

import mmap
import secrets
from collections.abc import Iterator, Sequence

import numpy as np

from pagoda.machine.cuda import Cuda
from pagoda.machine.tree import HostTree
from pagoda.tiers.host.region import TIER, Region
from pagoda.tiers.port import Geometry, See

# Two pieces stay in a processor's own cache (1 MiB on servers), and one is long enough to pay
# for the calls; measured from 64 KiB to 512 KiB.
_PIECE_BYTES = 256 << 10
_SHORT_BYTES = 64 << 10  # copied with the interpreter's lock: giving it up would cost more


class HostTier:
    """A Tier over one region of memory. Copies run without the interpreter lock.

    `cuda` pins the region; None leaves it ordinary memory. `tree` is where limits are read.
    Raises CapacityError when a limit of this machine cannot carry it.
    """

    name = TIER

    def __init__(
        self,
        *,
        slots: int,
        slot_bytes: int,
        cuda: Cuda | None = None,
        tree: HostTree | None = None,
    ) -> None:
        self.geometry = Geometry(slots=slots, slot_bytes=slot_bytes)
        self.identity = secrets.token_bytes(16)
        stride = -(-slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._region = Region(slots, stride, cuda=cuda, tree=tree)
        self._stride = stride
        self._memory = self._region.memory
        self._slots = np.frombuffer(self._memory, dtype=np.uint8).reshape(slots, stride)
        self._headers: dict[int, bytes] = {}

    @property
    def pinned(self) -> bool:
        """Whether devices copy from the region directly."""
        return self._region.pinned

    def reserve(self, slots: Sequence[int]) -> None:
        self.free(slots)

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        for slot, payload in zip(slots, payloads, strict=True):
            start = slot * self._stride
            if len(payload) <= _SHORT_BYTES:
                self._memory[start : start + len(payload)] = payload
            else:
                target = self._slots[slot, : len(payload)]
                np.copyto(target, np.frombuffer(payload, dtype=np.uint8))

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        self._headers.update(zip(slots, headers, strict=True))

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        for slot, buffer in zip(slots, into, strict=True):
            start = slot * self._stride
            if len(buffer) <= _SHORT_BYTES:
                buffer[:] = self._memory[start : start + len(buffer)]
            else:
                np.copyto(np.frombuffer(buffer, dtype=np.uint8), self._slots[slot, : len(buffer)])
        return [len(buffer) for buffer in into]

    def write_through(self, slot: int, payload: memoryview, see: See) -> None:
        source = np.frombuffer(payload, dtype=np.uint8)
        for start in range(0, len(source), _PIECE_BYTES):
            piece = source[start : start + _PIECE_BYTES]
            see(piece)
            np.copyto(self._slots[slot, start : start + len(piece)], piece)

    def read_through(self, slot: int, into: memoryview, see: See) -> int:
        """Digested in the slot and copied out of the cache, which costs half of digesting the
        copy. Who overwrites the slot meanwhile has forgotten its seal before, and the reader's
        second look at the seal finds that."""
        target = np.frombuffer(into, dtype=np.uint8)
        source = self._slots[slot, : len(target)]
        for start in range(0, len(target), _PIECE_BYTES):
            piece = source[start : start + _PIECE_BYTES]
            see(piece)
            np.copyto(target[start : start + len(piece)], piece)
        return len(target)

    def free(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._headers.pop(slot, None)

    def scan(self) -> Iterator[tuple[int, bytes]]:
        return iter(sorted(self._headers.items()))

    def close(self) -> None:
        self._headers.clear()
        self._region.close()
