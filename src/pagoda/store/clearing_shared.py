"""The part of a clearing that concerns a shared store: whole namespaces, and nothing else.

Its names tell a block's namespace, but neither its age nor what it continues; and it is
everybody's, so that clearing everything here clears nothing there.
"""

from __future__ import annotations

from pagoda.core.holdings import Scanned, Selection
from pagoda.store.shared import SharedLevel
from pagoda.store.shared_writes import SharedClearing


class SharedPart:
    """Owner's thread. Without a shared store it is done from the start."""

    def __init__(self, shared: SharedLevel | None, selection: Selection) -> None:
        self._shared = shared
        whole = selection.below is None and selection.before_s is None
        self._names = selection.namespaces if whole and shared is not None else None
        self._clearings: list[SharedClearing] = []

    def start(self) -> None:
        """Begin to delete and list."""
        if self._shared is not None:
            self._clearings = [self._shared.clear(name) for name in self._names or ()]

    @property
    def done(self) -> bool:
        return all(clearing.done for clearing in self._clearings)

    @property
    def verified(self) -> bool:
        """Whether the listings found nothing left of what was to go."""
        results = [clearing.result for clearing in self._clearings]
        return all(result is not None and result.left == 0 for result in results)

    @property
    def dropped(self) -> int:
        """Names deleted."""
        return sum(one.result.dropped for one in self._clearings if one.result is not None)

    def scans(self) -> list[Scanned]:
        """What the listings found; unknown when one could not be made."""
        if self._shared is None or not self._clearings:
            return []
        results = [one.result for one in self._clearings if one.result is not None]
        whole = len(results) == len(self._clearings)
        left = sum(result.left for result in results) if whole else None
        return [Scanned(tier=self._shared.name, headers=left, left=left, newer=0)]

    def untouched(self) -> tuple[str, ...]:
        """The shared store's name, when the selection says nothing that its names tell."""
        return (self._shared.name,) if self._shared is not None and self._names is None else ()
