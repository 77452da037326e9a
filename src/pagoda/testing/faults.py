"""A wrapper around the Tier port that breaks what passes through it, on purpose.

It models: flipped bits on read or at rest, short reads, lost, torn and misdirected writes,
and errors of the medium. It does not model reordered unsynced writes; `testing.memory` and
the recorded write logs of the crash lab do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pagoda.core.errors import TierError
from pagoda.tiers.port import Geometry, Tier


@dataclass(slots=True)
class Faults:
    """What to break, until it is cleared. Slots name blocks; errors are raised as they are."""

    flip_on_read: set[int] = field(default_factory=set)  # slots
    short_read: dict[int, int] = field(default_factory=dict)  # slot → bytes delivered
    lose_write: set[int] = field(default_factory=set)  # slots whose payload never arrives
    torn_write: dict[int, int] = field(default_factory=dict)  # slot → bytes that arrive
    misdirect_write: dict[int, int] = field(default_factory=dict)  # slot → where it lands
    read_error: dict[int, TierError] = field(default_factory=dict)  # slot → error
    write_error: TierError | None = None
    commit_error: TierError | None = None
    erase_error: TierError | None = None

    def clear(self) -> None:
        """Everything works again."""
        self.__init__()  # type: ignore[misc]


class FaultyTier:
    """A Tier that does what the inner one does, but for its `faults`."""

    def __init__(self, inner: Tier) -> None:
        self.inner = inner
        self.faults = Faults()

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def geometry(self) -> Geometry:
        return self.inner.geometry

    @property
    def identity(self) -> bytes:
        return self.inner.identity

    def flip_at_rest(self, slot: int, *, size_bytes: int, at: int) -> None:
        """Flip a bit of byte `at` of the first `size_bytes` of a slot, for good."""
        payload = memoryview(bytearray(size_bytes))
        self.inner.read([slot], [payload])
        payload[at] ^= 0x10
        self.inner.write([slot], [payload])

    def reserve(self, slots: Sequence[int]) -> None:
        self._fail(self.faults.erase_error)
        self.inner.reserve(slots)

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        faults = self.faults
        self._fail(faults.write_error)
        if not (faults.lose_write or faults.torn_write or faults.misdirect_write):
            self.inner.write(slots, payloads)
            return
        for slot, payload in zip(slots, payloads, strict=True):
            if slot in faults.lose_write:
                continue
            arrives = faults.torn_write.get(slot, len(payload))
            self.inner.write([faults.misdirect_write.get(slot, slot)], [payload[:arrives]])

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        self._fail(self.faults.commit_error)
        self.inner.commit(slots, headers)

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        faults = self.faults
        for slot in slots if faults.read_error else ():
            self._fail(faults.read_error.get(slot))
        if not (faults.flip_on_read or faults.short_read):
            return self.inner.read(slots, into)
        before = {slot: bytes(into[i]) for i, slot in enumerate(slots) if slot in faults.short_read}
        counts = self.inner.read(slots, into)
        for index, (slot, buffer) in enumerate(zip(slots, into, strict=True)):
            if slot in faults.flip_on_read:
                buffer[len(buffer) // 2] ^= 0x10
            if slot in faults.short_read:
                counts[index] = min(counts[index], faults.short_read[slot])
                buffer[counts[index] :] = before[slot][counts[index] :]
        return counts

    def free(self, slots: Sequence[int]) -> None:
        self._fail(self.faults.erase_error)
        self.inner.free(slots)

    def scan(self) -> Iterator[tuple[int, bytes]]:
        return self.inner.scan()

    def close(self) -> None:
        self.inner.close()

    @staticmethod
    def _fail(error: TierError | None) -> None:
        if error is not None:
            raise error.with_traceback(None)  # kept for the next time, but not its frames
