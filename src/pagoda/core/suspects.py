"""Negative entries: keys whose block was corrupt, unreadable or late a short while ago.

A copy that went bad in one tier may be as bad in the next, and a shared store keeps a bad
block for everyone. Without memory, a request would fetch, refuse and retry for ever; with it
the block is computed once, stored anew, and its name is good again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from pagoda.core.identity import Key


class Suspects:
    """At most `limit` keys, each for `ttl_s` seconds; the oldest is forgotten first."""

    def __init__(self, *, limit: int = 65_536, ttl_s: float = 30.0) -> None:
        assert limit > 0, "a memory of nothing remembers nothing"
        self._limit = limit
        self._ttl_s = ttl_s
        self._until_s: OrderedDict[Key, float] = OrderedDict()  # in order of expiry

    def __len__(self) -> int:
        return len(self._until_s)

    def add(self, key: Key, now_s: float) -> None:
        """The key's block was bad just now."""
        self._until_s[key] = now_s + self._ttl_s
        self._until_s.move_to_end(key)
        if len(self._until_s) > self._limit:
            self._until_s.popitem(last=False)

    def clear(self, keys: Iterable[Key]) -> None:
        """The keys' blocks were stored anew."""
        if self._until_s:
            for key in keys:
                self._until_s.pop(key, None)

    def trusted(self, keys: Sequence[Key], now_s: float) -> int:
        """Length of the prefix of `keys` without a suspect. Changes nothing."""
        if not self._until_s:
            return len(keys)
        for position, key in enumerate(keys):
            if now_s < self._until_s.get(key, now_s):
                return position
        return len(keys)

    def expire(self, now_s: float) -> None:
        """Forget what is old."""
        while self._until_s:
            key, until_s = next(iter(self._until_s.items()))
            if now_s < until_s:
                return
            del self._until_s[key]
