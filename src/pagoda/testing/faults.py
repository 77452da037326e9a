"""A wrapper around the Tier port that breaks what passes through it, on purpose.

It models: flipped bits on read or at rest (after a write), short reads, lost and misdirected
writes, and errors of the medium. It does not model torn headers or reordered unsynced
writes; those need a recorded write log.
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
    misdirect_write: dict[int, int] = field(default_factory=dict)  # slot → where it lands
    read_error: dict[int, TierError] = field(default_factory=dict)  # slot → error
    write_error: TierError | None = None
    commit_error: TierError | None = None

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

    def reserve(self, slots: Sequence[int]) -> None:
        self.inner.reserve(slots)

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        if self.faults.write_error is not None:
            raise self.faults.write_error
        for slot, payload in zip(slots, payloads, strict=True):
            if slot not in self.faults.lose_write:
                self.inner.write([self.faults.misdirect_write.get(slot, slot)], [payload])

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        if self.faults.commit_error is not None:
            raise self.faults.commit_error
        self.inner.commit(slots, headers)

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        for slot in slots:
            if slot in self.faults.read_error:
                raise self.faults.read_error[slot]
        counts = self.inner.read(slots, into)
        for index, (slot, buffer) in enumerate(zip(slots, into, strict=True)):
            if slot in self.faults.flip_on_read:
                buffer[len(buffer) // 2] ^= 0x10
            if slot in self.faults.short_read:
                counts[index] = min(counts[index], self.faults.short_read[slot])
        return counts

    def free(self, slots: Sequence[int]) -> None:
        self.inner.free(slots)

    def scan(self) -> Iterator[tuple[int, bytes]]:
        return self.inner.scan()

    def close(self) -> None:
        self.inner.close()
