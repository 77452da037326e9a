"""Admission to media that wear: one file each, one registry line each."""

from __future__ import annotations

from collections.abc import Callable

from pagoda.core.admission.port import Admission, Everything, Room, Verdict
from pagoda.core.admission.reuse import Reuse
from pagoda.core.admission.twice import Twice
from pagoda.core.admission.uses import LearnedUses, Uses

_REMEMBERED_A_SLOT = 8
_REMEMBERED = 1 << 17  # at most, whatever the size of the drives; some 40 MB


def _remembered(slots: int) -> int:
    return min(_REMEMBERED_A_SLOT * slots, _REMEMBERED)


# Each is made for a medium of so many slots.
REGISTRY: dict[str, Callable[[int], Admission]] = {
    "all": lambda _: Everything(),
    "twice": lambda slots: Twice(_remembered(slots)),
    "reuse": lambda slots: Reuse(LearnedUses(_remembered(slots))),
}

__all__ = [
    "REGISTRY",
    "Admission",
    "Everything",
    "LearnedUses",
    "Reuse",
    "Room",
    "Twice",
    "Uses",
    "Verdict",
]
