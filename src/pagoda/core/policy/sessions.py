"""Which request continues which: turns of conversations, told by nothing but chains of keys.

The last whole block of a prompt marks the end of what a session has said. A later request whose
chain leads through the mark is its next turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.identity import Key
from pagoda.core.policy.ghosts import Ghosts
from pagoda.core.policy.port import Ending, Hint, Request
from pagoda.core.policy.reuse import Kind, ReuseModel
from pagoda.core.policy.shared import SharedBlocks

_REMEMBERED = 65_536  # keys of blocks that requests had


@dataclass(frozen=True, slots=True)
class Visit:
    """A request as the history sees it: of its blocks, `known` were some earlier request's and
    `continued` those of the turn before; both are counted from the first."""

    kind: Kind
    known: int
    continued: int


class Sessions:
    """The history of requests, as far as it is remembered, and what is learned from it."""

    def __init__(self) -> None:
        self.model = ReuseModel()
        self.shared = SharedBlocks()
        self._seen: Ghosts[None] = Ghosts(_REMEMBERED)
        self._marks: OrderedDict[Key, tuple[int, int]] = OrderedDict()  # observation, turn

    def begin(self, request: Request) -> Visit:
        """A request comes, and may be the next turn of another."""
        keys = request.keys
        known = self._seen.leading(keys)
        turn, continued = 1, 0
        for position in range(known - 1, -1, -1):
            mark = self._marks.pop(keys[position], None)
            if mark is not None:
                number, last_turn = mark
                self.model.reused(number, request.at_s)
                turn, continued = last_turn + 1, position + 1
                break
        own = known if continued else 0  # what the last turn left, its answer with it
        self.shared.used(keys[:known], request.at_s, own=own)
        self._seen.put_all(keys, None)
        return Visit(Kind(turn, len(keys) - known, request.hint), known, continued)

    def end(self, visit: Visit, request: Request, ending: Ending) -> Kind | None:
        """It is over: its chain is observed from when it came. None for a request that has no
        chain of its own: what it asked was others' already."""
        whole = whole_blocks(request.keys, ending.keys)
        self._seen.put_all(ending.keys[whole:], None)
        if whole == 0 or (whole <= visit.known and not visit.continued):
            return None
        kind = visit.kind
        if ending.hint is not Hint.NONE:
            kind = Kind(kind.turn, kind.fresh, ending.hint)
        number = self.model.observe(kind, request.at_s)
        self._marks[request.keys[whole - 1]] = (number, kind.turn)
        self._marks.move_to_end(request.keys[whole - 1])
        while self.model.forgotten(next(iter(self._marks.values()))[0]):
            self._marks.popitem(last=False)
        return kind


def whole_blocks(prompt: Sequence[Key], chain: Sequence[Key]) -> int:
    """How many blocks of a prompt are its chain's: all, all but a last one that is not full, or
    as many as there are when it ended early."""
    count = min(len(prompt), len(chain))
    if count and prompt[count - 1] != chain[count - 1]:
        count -= 1
    return count
