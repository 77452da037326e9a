"""A medium in memory that a power cut may take bytes from, and a Tier over it.

It assumes of a medium what docs/design/format.md assumes: what was synced stays. Of the
writes since the last sync, a power cut keeps any subset, and any front part of a payload.
The end of a process alone takes nothing. Headers are kept or lost whole: each lies within
one sector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pagoda.seal.header import EMPTY
from pagoda.tiers.port import Geometry


class Medium:
    """Headers and payloads of `slots` slots: as a reader sees them, and as they were synced.

    `doubtful` holds slots whose header no longer speaks for the payload beside it: the
    payload was overwritten, and the erasing of the header may not have lasted.
    """

    def __init__(self, *, slots: int, identity: bytes) -> None:
        self.identity = identity
        self.headers = [EMPTY] * slots
        self.payloads = [b""] * slots
        self.doubtful: set[int] = set()
        self._synced_headers = list(self.headers)
        self._synced_payloads = list(self.payloads)
        self._dirty_headers: set[int] = set()
        self._dirty_payloads: set[int] = set()

    def put_header(self, slot: int, header: bytes) -> None:
        """Write a header; EMPTY erases it."""
        if header != self.headers[slot]:
            self.headers[slot] = header
            self._dirty_headers.add(slot)
        if header != EMPTY:
            self.doubtful.discard(slot)

    def put_payload(self, slot: int, payload: bytes) -> None:
        """Overwrite the front of a slot."""
        self.payloads[slot] = payload + self.payloads[slot][len(payload) :]
        self._dirty_payloads.add(slot)
        self.doubtful.add(slot)

    def sync(self) -> None:
        """Make everything durable."""
        for slot in self._dirty_headers:
            self._synced_headers[slot] = self.headers[slot]
        for slot in self._dirty_payloads:
            self._synced_payloads[slot] = self.payloads[slot]
        self._dirty_headers.clear()
        self._dirty_payloads.clear()

    def cut_power(self, chance: Callable[[], float]) -> None:
        """Lose some of what was not synced; `chance` draws from [0, 1)."""
        for slot in sorted(self._dirty_headers):
            if chance() < 0.5:
                self.headers[slot] = self._synced_headers[slot]
        for slot in sorted(self._dirty_payloads):
            kept = int(2 * chance() * len(self.payloads[slot]))
            whole = self.payloads[slot][:kept]
            self.payloads[slot] = whole + self._synced_payloads[slot][kept:]
        self.sync()


class MemoryTier:
    """A Tier over a medium. Slots have no fixed size: a payload of any length up to
    `slot_bytes` takes just that much memory."""

    def __init__(self, name: str, medium: Medium, *, slot_bytes: int) -> None:
        self.name = name
        self.medium = medium
        self.geometry = Geometry(slots=len(medium.headers), slot_bytes=slot_bytes)

    @property
    def identity(self) -> bytes:
        return self.medium.identity

    def reserve(self, slots: Sequence[int]) -> None:
        self.free(slots)

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        for slot, payload in zip(slots, payloads, strict=True):
            self.medium.put_payload(slot, bytes(payload))

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        self.medium.sync()
        for slot, header in zip(slots, headers, strict=True):
            self.medium.put_header(slot, bytes(header))

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        for slot, buffer in zip(slots, into, strict=True):
            payload = self.medium.payloads[slot][: len(buffer)]
            buffer[:] = payload + bytes(len(buffer) - len(payload))
        return [len(buffer) for buffer in into]

    def free(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.medium.put_header(slot, EMPTY)

    def scan(self) -> Iterator[tuple[int, bytes]]:
        for slot, header in enumerate(self.medium.headers):
            if header != EMPTY:
                yield slot, header

    def close(self) -> None:
        self.medium.sync()
