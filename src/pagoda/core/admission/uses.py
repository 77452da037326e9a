"""How often a block will be used again, learned from how often blocks like it were.

A block's class is how often it has been used, and how many new blocks the request had that used
it last: a request that adds little to what is known is most likely to be followed by another
one. A class is worth the mean number of uses that its blocks had within a span of the blocks
that were used after; what has not come to the end of its span does not count yet. Classes of
few blocks lean on wider ones, and those on the rule that a second use promises a third. Old
counts fade.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

from pagoda.core.identity import Key
from pagoda.core.policy.port import Ending

_HALF_LIFE = 100_000  # blocks, after which a count weighs half
_LEAN = 300  # blocks of a wider class that a narrower one begins with
_FIRST_USES = (0.25, 1.0, 1.0)  # expected of a block used once, twice, more often
_FIRST_USUAL = 0.5
_SPAN = 0.5  # of what is remembered
_TRIALS_A_BLOCK = 3

_Name = tuple[int, ...]  # of a class: uses, bits of the number of new blocks
_ALL: _Name = ()


class Uses(Protocol):
    """Expects something of blocks."""

    def end(self, ending: Ending) -> None:
        """A request is over; all its blocks count as used."""
        ...

    def expected(self, key: Key) -> float | None:
        """How many uses of a block will follow its last one; None for an unknown block."""
        ...

    def usual(self) -> float:
        """How many follow the use of a block in the mean, whatever block it is."""
        ...


@dataclass(slots=True, eq=False)
class _Class:
    """Blocks that were in a class, and the uses that followed; both fade."""

    blocks: float = 0.0
    followed: float = 0.0

    def mean(self, otherwise: float) -> float:
        """Uses a block, leaning on what is expected otherwise."""
        return (self.followed + _LEAN * otherwise) / (self.blocks + _LEAN)

    def count(self, trial: _Trial) -> None:
        """A trial has come to its end."""
        keep = 0.5 ** (trial.blocks / _HALF_LIFE)
        self.blocks = self.blocks * keep + trial.blocks
        self.followed = self.followed * keep + trial.followed


@dataclass(slots=True, eq=False)
class _Trial:
    """The blocks of one request that are in one class, and their uses since then."""

    name: _Name
    blocks: int = 0
    followed: int = 0


@dataclass(slots=True, eq=False)
class _Known:
    """A block that is remembered, with the trials that it was last in."""

    uses: int = 0
    trials: tuple[_Trial, ...] = ()


class LearnedUses(Uses):
    """Remembers the last `remembered` blocks that were used."""

    def __init__(self, remembered: int) -> None:
        self._most = max(2, remembered)
        self._known: dict[Key, _Known] = {}  # least recently used first
        self._classes: dict[_Name, _Class] = {}
        self._open: deque[_Trial] = deque()  # oldest first
        self._open_blocks = 0

    def end(self, ending: Ending) -> None:
        held = sum(1 for _ in takewhile(self._known.__contains__, ending.keys))
        new = (len(ending.keys) - held).bit_length()
        trials: dict[int, _Trial] = {}
        for key in ending.keys:
            block = self._known.pop(key, None) or _Known()
            self._known[key] = block
            self._use(block, new, trials)
        self._open.extend(trials.values())
        self._open_blocks += len(ending.keys)
        self._settle()
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def expected(self, key: Key) -> float | None:
        block = self._known.get(key)
        if block is None:
            return None
        name = block.trials[-1].name
        uses = _FIRST_USES[name[0] - 1]
        for known in (self._classes.get(name[:1]), self._classes.get(name)):
            uses = known.mean(uses) if known else uses
        return uses

    def usual(self) -> float:
        known = self._classes.get(_ALL)
        return known.mean(_FIRST_USUAL) if known else _FIRST_USUAL

    def _use(self, block: _Known, new: int, trials: dict[int, _Trial]) -> None:
        """A request uses a block; `trials` are its own so far, by uses."""
        for trial in block.trials:
            trial.followed += 1
        block.uses = min(block.uses + 1, len(_FIRST_USES))
        trial = trials.setdefault(block.uses, _Trial((block.uses, new)))
        trial.blocks += 1
        block.trials = (*block.trials[1 - _TRIALS_A_BLOCK :], trial)

    def _settle(self) -> None:
        """Count the trials whose span is over."""
        while self._open_blocks > self._most * _SPAN:
            trial = self._open.popleft()
            self._open_blocks -= trial.blocks
            for name in (_ALL, trial.name[:1], trial.name):
                self._classes.setdefault(name, _Class()).count(trial)
