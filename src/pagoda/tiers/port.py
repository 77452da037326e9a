"""The tier port: seven methods over slots, headers and aligned buffers.

A tier moves bytes. It knows no keys, leases or policies, and it verifies nothing: seals,
deadlines, metrics and injected faults are wrappers around this port. Slots are chosen by
the owner of the state; a tier is called from several threads, never twice at once for the
same slot. Failures are the typed errors of core.errors; short reads are not errors here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pagoda.core.errors import TierError, TierFault

See = Callable[[Any], object]  # is shown pieces of a payload: anything with the buffer protocol


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


@runtime_checkable
class Streaming(Protocol):
    """An optional part of the port, for tiers whose slots are memory of this process.

    Whoever digests a payload then sees it piece by piece while it is in the processor's cache,
    and memory is read once instead of twice.
    """

    def write_through(self, slot: int, payload: memoryview, see: See) -> None:
        """Write one payload as `write` does; `see` is shown what was given, not what arrived."""
        ...

    def read_through(self, slot: int, into: memoryview, see: See) -> int:
        """Read one payload as `read` does; `see` is shown what is read, in the slot or in `into`.
        Whoever may overwrite a slot under a reader has to let the reader notice."""
        ...


def streaming(tier: Tier) -> Streaming | None:
    """The tier's streaming part, if it has one."""
    return tier if isinstance(tier, Streaming) else None


@contextmanager
def held_to_its_errors(name: str) -> Iterator[None]:
    """Whatever a tier raises inside becomes a TierError: one that breaks its contract is a broken
    tier, not a broken engine."""
    try:
        yield
    except TierError:
        raise
    except Exception as error:
        message = f"{name}: it raised {type(error).__name__}, which is no error of a tier"
        raise TierFault(message, tier=name) from error
