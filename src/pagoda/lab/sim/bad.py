"""Blocks that were found bad, and must not be asked for again for a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagoda.core.events import Reason
from pagoda.core.identity import Key
from pagoda.core.outcome import Corrupt, Outcome, Unavailable
from pagoda.lab.sim.failure import Check, ensure

REMOTE = "remote"
_NEGATIVE_S = 15.0  # half of what the store promises, which counts from when it heard


class BadBlocks:
    """What one node was told of, and what it has stored anew since."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.writes = 0  # blocks whose headers were written so far
        self._clock = clock
        # Until when a key must not be asked for again, and the tier that had it wrong.
        self._until: dict[Key, tuple[float, str]] = {}
        self._stored: dict[Key, int] = {}  # the number of its last write
        self._unpublished: dict[str, set[Key]] = {}  # written to a tier, not yet heard of

    def stored_anew(self, tier: str, keys: Sequence[Key]) -> None:
        """Headers of these blocks were written: their names are good again, once the store
        hears of it."""
        self._unpublished.setdefault(tier, set()).update(keys)
        for key in keys:
            self.writes += 1
            self._stored[key] = self.writes
            self._until.pop(key, None)

    def published(self, tier: str) -> None:
        """The store has taken in what was written to a tier."""
        self._unpublished.pop(tier, None)

    def remember(
        self, key: Key, outcome: Outcome, *, writes_before: int, deadline_s: float
    ) -> None:
        """A bad block is not asked for again for a while, which counts from its restore's
        deadline if the request hears of it later. One is that was stored anew since its restore
        began (after `writes_before` writes), or that the store will hear of so."""
        if not isinstance(outcome, Corrupt | Unavailable) or outcome.reason is Reason.TIMEOUT:
            return
        if outcome.tier == REMOTE and isinstance(outcome, Unavailable):
            return  # a failing store is its breaker's matter; its blocks may be sound
        heard = not any(key in keys for keys in self._unpublished.values())
        if heard and self._stored.get(key, 0) <= writes_before:
            self._until[key] = (min(self._clock(), deadline_s) + _NEGATIVE_S, outcome.tier)

    def check(self, keys: Sequence[Key], held_here: Callable[[Key], bool]) -> None:
        """The store offers these blocks to a request."""
        if not self._until:
            return
        now_s = self._clock()
        self._until = {key: entry for key, entry in self._until.items() if now_s < entry[0]}
        for key in keys:
            if key in self._until:
                # What a shared store has spoilt may still be had from a tier of our own.
                elsewhere = self._until[key][1] == REMOTE and held_here(key)
                ensure(elsewhere, Check.NEGATIVE, "a block that was bad is asked for again")
