"""The tier port: seven methods over slots, headers and aligned buffers.

A tier moves bytes. It knows no keys, leases or policies, and it verifies nothing: seals,
deadlines, metrics and injected faults are wrappers around this port. Slots are chosen by
the owner of the state; a tier is called from several threads, never twice at once for the
same slot. Failures are the typed errors of core.errors; short reads are not errors here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Sizes of a tier. Buffers whose address and length are multiples of `alignment_bytes`
    move without a copy."""

    slots: int
    slot_bytes: int
    alignment_bytes: int = 1


class Tier(Protocol):
    """A place that holds payloads in slots and their headers apart from them."""

    @property
    def name(self) -> str: ...

    @property
    def geometry(self) -> Geometry: ...

    @property
    def identity(self) -> bytes:
        """16 bytes that tell this medium from any other; headers carry it."""
        ...

    def reserve(self, slots: Sequence[int]) -> None:
        """Erase the headers of slots that are about to be overwritten."""
        ...

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        """Write payloads, each at the front of its slot."""
        ...

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        """Make written payloads durable, then write their headers."""
        ...

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        """Read the front of each slot into a caller's buffer; returns bytes read for each."""
        ...

    def free(self, slots: Sequence[int]) -> None:
        """Erase the headers of slots whose blocks are gone."""
        ...

    def scan(self) -> Iterator[tuple[int, bytes]]:
        """(slot, header) of every place that is not empty; payloads stay untouched."""
        ...

    def close(self) -> None:
        """Make everything durable and let go of the medium."""
        ...
