"""Admit what is expected to be used more often than blocks usually are, or once at least.

How much more follows the write budget (core.admission.threshold). While the medium has slots
that no block has yet, everything is written: it pushes out nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.admission.port import Admission, Room, Verdict, closed
from pagoda.core.admission.threshold import Threshold
from pagoda.core.admission.uses import Uses
from pagoda.core.identity import Key
from pagoda.core.policy.port import Ending

WORTH = 1.0  # what is usual; docs/reference/policies.md says what it was fixed on
_PAID = 1.0  # uses that are worth a write, however much more is usual


class Reuse(Admission):
    """`uses` says what to expect; `worth` is what a write has to bring at least, in multiples of
    the uses that follow the use of a block in the mean, or of one use if that is less."""

    def __init__(self, uses: Uses, worth: float = WORTH) -> None:
        self._uses = uses
        self._threshold = Threshold(worth)

    def end(self, ending: Ending) -> None:
        self._uses.end(ending)

    def judge(self, keys: Sequence[Key], parents: Sequence[Key], room: Room) -> list[Verdict]:
        least = self._threshold.at(room.now_s, room.pace) * min(self._uses.usual(), _PAID)
        known = [self._verdict(key, least) for key in keys[room.free :]]
        verdicts = closed(keys, parents, [Verdict.WRITE] * (len(keys) - len(known)) + known)
        self._threshold.wrote(verdicts.count(Verdict.WRITE) * room.block_bytes)
        return verdicts

    def _verdict(self, key: Key, least: float) -> Verdict:
        uses = self._uses.expected(key)
        if uses is None:
            return Verdict.WAIT
        return Verdict.WRITE if uses >= least else Verdict.DECLINE
