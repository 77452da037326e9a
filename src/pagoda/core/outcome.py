"""What became of a block that was asked for: four outcomes, four types, never None."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.core.events import Reason


@dataclass(frozen=True, slots=True)
class Hit:
    """The bytes are in the caller's buffer and their seal was verified."""

    tier: str


@dataclass(frozen=True, slots=True)
class Miss:
    """No tier holds the block (any more); nothing is wrong."""

    reason: Reason = Reason.ABSENT


@dataclass(frozen=True, slots=True)
class Corrupt:
    """A tier held something else than what was sealed; the buffer is zeroed."""

    tier: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The tier did not deliver in time, or reported an error; the buffer is zeroed."""

    tier: str
    reason: Reason


Outcome = Hit | Miss | Corrupt | Unavailable


def usable(outcomes: list[Outcome]) -> int:
    """Length of the usable prefix: it ends at the first block that is not a hit."""
    for position, outcome in enumerate(outcomes):
        if not isinstance(outcome, Hit):
            return position
    return len(outcomes)
