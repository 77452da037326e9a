"""Automatic pins: the hottest blocks stay up, within a budget of their own.

Which those are is judged anew every few seconds, by how often requests used a block of late, so
that nothing stays pinned for having been hot once. Nothing of it survives a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pagoda.core.hottest import Hottest
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.pins import Room, blocks_of

_REVIEW_S = 10.0  # between two judgements
_USES = 3.0  # of late; fewer are no reason to keep a block
_KEYS = 65_536  # remembered at most
_NOBODY: frozenset[Key] = frozenset()


class HotPins:
    """What is hottest in each of `rooms`, up to a `share` of it. Share 0 remembers nothing."""

    def __init__(self, rooms: Sequence[Room], share: float, *, clock: Callable[[], float]) -> None:
        self._budgets = {room.tier: blocks_of(share, room) for room in rooms}
        self._clock = clock
        most = max(self._budgets.values(), default=0)
        # More keys than may be pinned, so that what becomes hot is seen to.
        self._hottest = Hottest(limit=min(_KEYS, 8 * most)) if most else None
        self._keys: dict[str, frozenset[Key]] = {}
        self._review_s = 0.0

    def keys(self, tier: str) -> frozenset[Key]:
        """What is hottest in a tier, beside what was pinned by name."""
        return self._keys.get(tier, _NOBODY)

    def used(self, namespace: NamespaceId, keys: Sequence[Key]) -> None:
        """A request for a prefix came."""
        if self._hottest is not None:
            self._hottest.used(namespace, keys, self._clock())

    def forget(self, namespaces: frozenset[NamespaceId] | None) -> None:
        """Blocks of these namespaces (None: of all) were cleared: judge anew, without them."""
        if self._hottest is not None:
            self._hottest.forget(namespaces)
            self._review_s = 0.0

    def review(self, named: Mapping[str, frozenset[Key]]) -> bool:
        """Judge anew, if it is time to; True when anything has changed. `named` are the keys
        that are pinned by name in each tier."""
        now_s = self._clock()
        if self._hottest is None or now_s < self._review_s:
            return False
        self._review_s = now_s + _REVIEW_S
        before = self._keys
        self._keys = {
            tier: frozenset(self._hottest.top(budget, now_s, least=_USES, but=named[tier]))
            for tier, budget in self._budgets.items()
        }
        return self._keys != before

    def check_invariants(self) -> None:
        """No more is pinned than the budgets allow."""
        for tier, keys in self._keys.items():
            assert len(keys) <= self._budgets[tier], f"{tier}: too much is pinned for being hot"
