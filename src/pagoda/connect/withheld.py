"""Blocks that an engine is told are not there, so that it computes them and the store compares.

No engine has to be changed for the sampled check: for a request that was chosen, what is found is
answered as absent. The engine computes it and offers it for storing like anything new; then it is
held against the copies that are there (`store.checks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pagoda.store.checks import Checks

_MOST_NAMES = 65_536  # the oldest is forgotten: its block was never offered


class Withheld:
    """By the engine's names for blocks and requests. Whoever holds the store's lock calls it."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._chosen: dict[str, bool] = {}  # requests that found something
        self._names: dict[bytes, None] = {}

    def hides(self, name: bytes, request: str) -> bool:
        """Whether a request is to be told that a block which was found is not there. A request
        is chosen, or not, with the first one that it finds."""
        if not self._checks.active:
            return False
        if request not in self._chosen:
            self._chosen[request] = self._checks.allow(1) == 0
        if self._chosen[request]:
            self.hide([name])
        return self._chosen[request]

    def lead(self, names: Sequence[bytes]) -> int:
        """How many leading ones of those that a look-up found it is told of."""
        allowed = self._checks.allow(len(names))
        self.hide(names[allowed:])
        return allowed

    def hide(self, names: Iterable[bytes]) -> None:
        """These were not told of."""
        for name in names:
            self._names[name] = None
        while len(self._names) > _MOST_NAMES:
            del self._names[next(iter(self._names))]

    def offered(self, name: bytes) -> bool:
        """Whether a block that is offered for storing was hidden; once."""
        if name not in self._names:
            return False
        del self._names[name]
        return True

    def forget(self, request: str) -> None:
        """A request is over; what was hidden from it may still be offered."""
        self._chosen.pop(request, None)
