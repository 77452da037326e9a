"""A restore under way: a prefix's blocks on their way into caller-owned buffers."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.events import Reason
from pagoda.core.identity import Key
from pagoda.core.outcome import Outcome, Unavailable, usable


class Restore:
    """One outcome a block, by a deadline at the latest.

    `done` says that every outcome is known; `drained` that no thread writes into the
    buffers any more. After a deadline a restore is done before it is drained: the caller
    goes on with what arrived and leaves the late blocks' buffers alone until then.
    """

    def __init__(
        self, keys: Sequence[Key], into: Sequence[memoryview], *, deadline_s: float
    ) -> None:
        self.keys = tuple(keys)
        self.into = tuple(into)
        self.deadline_s = deadline_s
        self._outcomes: list[Outcome | None] = [None] * len(keys)
        self._tiers: list[str] = [""] * len(keys)
        self._flying: set[int] = set()  # positions that a thread may still write to

    @property
    def done(self) -> bool:
        return all(outcome is not None for outcome in self._outcomes)

    @property
    def drained(self) -> bool:
        return not self._flying

    @property
    def outcomes(self) -> list[Outcome]:
        """One a block; only once done."""
        known = [outcome for outcome in self._outcomes if outcome is not None]
        assert len(known) == len(self._outcomes), "the restore is not done"
        return known

    @property
    def usable_blocks(self) -> int:
        """Length of the verified prefix; only once done."""
        return usable(self.outcomes)

    def flying(self) -> frozenset[int]:
        """Positions whose buffers are not the caller's yet."""
        return frozenset(self._flying)

    def started(self, positions: range, tier: str) -> None:
        """An I/O order for these positions was queued."""
        self._flying.update(positions)
        for position in positions:
            self._tiers[position] = tier

    def landed(self, positions: range, outcomes: Sequence[Outcome]) -> None:
        """The order ended; outcomes that come after the deadline change nothing."""
        self._flying.difference_update(positions)
        for position, outcome in zip(positions, outcomes, strict=True):
            if self._outcomes[position] is None:
                self._outcomes[position] = outcome

    def expire(self, positions: range) -> None:
        """The deadline has passed: of these, what has not arrived is late."""
        for position in positions:
            if self._outcomes[position] is None:
                self._outcomes[position] = Unavailable(self._tiers[position], Reason.TIMEOUT)
