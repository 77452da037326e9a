"""Blocks that an engine is told are not there, so that it computes them and the store compares.

No engine has to be changed for the sampled check: for a request that was chosen, what is found is
answered as absent. The engine computes it and offers it for storing like anything new; then it is
held against the copies that are there (`store.checks`). An engine that names the request with
what it offers needs `ChosenRequests`, one that does not `HiddenBlocks`. Whoever holds the store's
lock calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pagoda.store.checks import Checks

_MOST_NAMES = 65_536  # the oldest is forgotten: its block was never offered
_MOST_REQUESTS = 4096  # the oldest ended long ago
Name = TypeVar("Name")


class ChosenRequests:
    """Requests by the engine's names for them: each is chosen, or not, when it finds a block."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._chosen: dict[str, bool] = {}

    def hides(self, request: str) -> bool:
        """Whether a request is to be told that a block which was found is not there."""
        if not self._checks.active:
            return False
        if request not in self._chosen:
            self._chosen[request] = self._checks.allow(1) == 0
            _forget(self._chosen, _MOST_REQUESTS)
        return self._chosen[request]

    def chosen(self, request: str) -> bool:
        """Whether what a request offers is to be compared; also when it is over by then."""
        return self._chosen.get(request, False)


class HiddenBlocks:
    """Blocks by the engine's names for them."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._names: dict[bytes, None] = {}

    def lead(self, names: Sequence[bytes]) -> int:
        """How many leading ones of those that a look-up found it is told of."""
        allowed = self._checks.allow(len(names))
        for name in names[allowed:]:
            self._names[name] = None
        _forget(self._names, _MOST_NAMES)
        return allowed

    def offered(self, name: bytes) -> bool:
        """Whether a block that is offered for storing was hidden; once."""
        if name not in self._names:
            return False
        del self._names[name]
        return True


def _forget(entries: dict[Name, bool] | dict[Name, None], most: int) -> None:
    """Drop the oldest beyond `most`."""
    while len(entries) > most:
        del entries[next(iter(entries))]
