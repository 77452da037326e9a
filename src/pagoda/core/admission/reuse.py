"""Admit what is expected to be used often enough to be worth a write.

What that is follows the write budget (core.admission.threshold). While the medium has slots
that no block has yet, everything is written: it pushes out nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.admission.port import Admission, Room, closed
from pagoda.core.admission.threshold import Threshold
from pagoda.core.admission.uses import Uses
from pagoda.core.identity import Key
from pagoda.core.policy.port import Ending

WORTH = 0.6  # uses a written block; see docs/reference/policies.md for what it was fixed on


class Reuse(Admission):
    """`uses` says what to expect; `worth` is how many uses a write has to bring at least."""

    def __init__(self, uses: Uses, worth: float = WORTH) -> None:
        self._uses = uses
        self._threshold = Threshold(worth)

    def end(self, ending: Ending) -> None:
        self._uses.end(ending)

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], room: Room) -> list[int]:
        """What is worth it. Of a block that no ended request had, nothing is known: it is
        refused, and offered again when its request ends."""
        least = self._threshold.at(room.now_s, room.pace)
        empty = min(room.free, len(keys))
        worth = [i for i in range(empty, len(keys)) if self._worth(keys[i]) >= least]
        chosen = closed(keys, parents, [*range(empty), *worth])
        self._threshold.wrote(len(chosen) * room.block_bytes)
        return chosen

    def _worth(self, key: Key) -> float:
        return self._uses.expected(key) or 0.0
