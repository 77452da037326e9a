"""Slots in one region of memory, allocated once; its headers end with the process."""

from __future__ import annotations

import mmap
import secrets
from collections.abc import Iterator, Sequence

import numpy as np

from pagoda.core.errors import CapacityError
from pagoda.machine.buffers import aligned_buffer
from pagoda.tiers.port import Geometry


class HostTier:
    """A Tier over ordinary memory. Copies run without the interpreter lock.

    Raises CapacityError when this machine refuses that much memory.
    """

    name = "host"

    def __init__(self, *, slots: int, slot_bytes: int) -> None:
        self.geometry = Geometry(slots=slots, slot_bytes=slot_bytes)
        self.identity = secrets.token_bytes(16)
        region = _region(slots * slot_bytes)
        self._slots = np.frombuffer(region, dtype=np.uint8)[: slots * slot_bytes].reshape(
            slots, slot_bytes
        )
        self._headers: dict[int, bytes] = {}

    def reserve(self, slots: Sequence[int]) -> None:
        self.free(slots)

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        for slot, payload in zip(slots, payloads, strict=True):
            np.copyto(self._slots[slot, : len(payload)], np.frombuffer(payload, dtype=np.uint8))

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        self._headers.update(zip(slots, headers, strict=True))

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        for slot, buffer in zip(slots, into, strict=True):
            np.copyto(np.frombuffer(buffer, dtype=np.uint8), self._slots[slot, : len(buffer)])
        return [len(buffer) for buffer in into]

    def free(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._headers.pop(slot, None)

    def scan(self) -> Iterator[tuple[int, bytes]]:
        return iter(sorted(self._headers.items()))

    def close(self) -> None:
        self._headers.clear()


def _region(size_bytes: int) -> mmap.mmap:
    try:
        return aligned_buffer(size_bytes)
    except (OSError, OverflowError) as error:
        raise CapacityError(
            f"this machine has no {size_bytes} bytes of memory for the host tier: {error}",
            tier=HostTier.name,
            asked_bytes=size_bytes,
            limit_bytes=0,
            remedy="lower host.capacity, or set it to 0 to leave the tier out",
        ) from error
