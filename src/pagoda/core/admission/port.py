"""The admission port: which blocks are worth a write to a medium that wears.

An admission hears of requests as they end (`end`), and judges blocks that the medium does not
hold (`judge`). It reads no clock: time is what it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pagoda.core.identity import Key
from pagoda.core.policy.port import Ending


class Verdict(Enum):
    """What is to be done with a block."""

    WRITE = "write"
    DECLINE = "decline"  # not now: it is offered again when it is used again
    WAIT = "wait"  # nothing is known of it before its request ends; it is offered again then


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How the medium stands: slots that no block has yet, the size of one in bytes, when it is
    (seconds, monotonic), and how many bytes a second its write budget allows; None: any."""

    free: int
    block_bytes: int
    now_s: float
    pace: float | None = None


class Admission(Protocol):
    """Judges blocks in the order in which they are offered. Memory is bounded."""

    def end(self, ending: Ending) -> None:
        """A request is over, and all its blocks count as used. What that says of them is known
        from now on: those that the medium lacks are offered after this."""
        return

    def judge(self, keys: Sequence[Key], parents: Sequence[Key], room: Room) -> list[Verdict]:
        """A verdict for each of these blocks. None of them is on the medium; parents come before
        their children, and no block is written whose parent is among them and is not. What is
        to be written counts as written."""
        ...


class Everything(Admission):
    """Whatever is offered is written, as drives' caches mostly do."""

    def judge(self, keys: Sequence[Key], parents: Sequence[Key], room: Room) -> list[Verdict]:
        return [Verdict.WRITE] * len(keys)


def closed(
    keys: Sequence[Key], parents: Sequence[Key], verdicts: Sequence[Verdict]
) -> list[Verdict]:
    """The verdicts, but that a block whose parent is not written shares its parent's."""
    final: dict[Key, Verdict] = {}
    for key, parent, verdict in zip(keys, parents, verdicts, strict=True):
        above = final.get(parent, Verdict.WRITE)
        final[key] = verdict if above is Verdict.WRITE else above
    return [final[key] for key in keys]
