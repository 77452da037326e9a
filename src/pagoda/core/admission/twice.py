"""Admit what has been used twice: the filter that needs no learning.

Most blocks are never used again, so the second use is the first that says anything. Reference:
the "one-hit wonders" of B. M. Maggs and R. K. Sitaraman, "Algorithmic nuggets in content
delivery", CCR 45(3), 2015, which a content network keeps off its disks.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.admission.port import Admission, Room, Verdict, closed
from pagoda.core.identity import Key
from pagoda.core.policy.port import Ending

_VERDICTS = (Verdict.WAIT, Verdict.DECLINE, Verdict.WRITE)  # by uses


class Twice(Admission):
    """Remembers the keys of two spans, the present one and the one before; a span ends when it
    has `remembered` keys. So the last `remembered` keys are known for certain, and never more
    than twice as many are kept."""

    def __init__(self, remembered: int) -> None:
        self._most = max(1, remembered)
        self._uses: dict[Key, int] = {}
        self._before: dict[Key, int] = {}

    def end(self, ending: Ending) -> None:
        for key in ending.keys:
            self._uses[key] = min(2, self._known(key) + 1)
            if len(self._uses) >= self._most:
                self._before, self._uses = self._uses, {}

    def judge(self, keys: Sequence[Key], parents: Sequence[Key], room: Room) -> list[Verdict]:
        """What has been used twice, and anything while there are slots without a block."""
        known = [_VERDICTS[self._known(key)] for key in keys[room.free :]]
        return closed(keys, parents, [Verdict.WRITE] * (len(keys) - len(known)) + known)

    def _known(self, key: Key) -> int:
        return self._uses.get(key) or self._before.get(key, 0)
