"""The admission port: which blocks are worth a write to a medium that wears.

An admission hears of requests as they end (`end`), and is asked about blocks that the medium
does not hold (`admits`). It reads no clock: time is what it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pagoda.core.identity import Key
from pagoda.core.policy.port import Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How the medium stands: slots that no block has yet, the size of one in bytes, when it is
    (seconds, monotonic), and how many bytes a second its write budget allows; None: any."""

    free: int
    block_bytes: int
    now_s: float
    pace: float | None = None


class Admission(Protocol):
    """Decides about blocks in the order in which they are offered. A block that is refused may
    be offered again whenever it is used. Memory is bounded."""

    def end(self, ending: Ending) -> None:
        """A request is over, and all its blocks count as used. What that says of them is known
        from now on: those that the medium lacks are offered after this."""
        return

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], room: Room) -> list[int]:
        """Positions of the blocks to be written, in ascending order. None of them is on the
        medium; parents come before their children, and a block whose parent is refused is
        refused as well. What is admitted counts as written."""
        ...


class Everything(Admission):
    """Whatever is offered is written, as drives' caches mostly do."""

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], room: Room) -> list[int]:
        return list(range(len(keys)))


def closed(keys: Sequence[Key], parents: Sequence[Key], chosen: Sequence[int]) -> list[int]:
    """Those of the chosen positions whose parent, if it is among the keys, is chosen too."""
    refused = set(keys).difference(keys[i] for i in chosen)
    kept: list[int] = []
    for i in chosen:
        if parents[i] in refused:
            refused.add(keys[i])
        else:
            kept.append(i)
    return kept
