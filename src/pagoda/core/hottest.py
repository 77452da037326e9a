"""The hottest blocks: how often requests used each of late.

A use counts half after `half_life_s`. All counts fade alike, so their order changes by uses
alone: a use is added with a weight that doubles every half-life, and nothing is touched as time
goes by. A request uses a prefix, so a block is never hotter than the one before it, and the
hottest blocks are prefixes, too.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from pagoda.core.identity import Key, NamespaceId

_LARGEST_EXPONENT = 500.0  # of 2; a double ends at 1023


class Hottest:
    """Decayed counts of at most `limit` keys; beyond that the colder half is forgotten."""

    def __init__(self, *, limit: int, half_life_s: float = 3600.0) -> None:
        assert limit > 0, "a memory of nothing knows nothing hot"
        assert half_life_s > 0, "uses fade"
        self._limit = limit
        self._half_life_s = half_life_s
        self._origin_s: float | None = None  # when a use had the weight 1
        self._counts: dict[Key, float] = {}
        self._places: dict[Key, tuple[int, NamespaceId]] = {}  # depth, and whose it is

    def __len__(self) -> int:
        return len(self._counts)

    def used(self, namespace: NamespaceId, keys: Sequence[Key], at_s: float) -> None:
        """A request for a prefix came. `at_s` never falls."""
        weight = self._weight(at_s)
        for depth, key in enumerate(keys[: self._limit]):
            self._counts[key] = self._counts.get(key, 0.0) + weight
            self._places[key] = (depth, namespace)
        if len(self._counts) > self._limit:
            self._forget_colder()

    def top(self, count: int, at_s: float, *, least: float, but: Container[Key]) -> list[Key]:
        """Up to `count` keys that were used `least` times or more, by what is left of their
        counts; the hottest first, and none of `but`."""
        floor = least * self._weight(at_s)
        hot = [key for key, uses in self._counts.items() if uses >= floor and key not in but]
        return sorted(hot, key=self._rank)[:count]

    def forget(self, namespaces: Container[NamespaceId] | None) -> None:
        """Drop what is known of these namespaces; None: of all."""
        for key, (_, namespace) in list(self._places.items()):
            if namespaces is None or namespace in namespaces:
                del self._counts[key], self._places[key]

    def _weight(self, at_s: float) -> float:
        """How much a use counts now, in uses of the origin's time."""
        if self._origin_s is None:
            self._origin_s = at_s
        exponent = (at_s - self._origin_s) / self._half_life_s
        if exponent > _LARGEST_EXPONENT:
            self._move_origin(at_s, 2.0**-exponent)
            return 1.0
        return float(2.0**exponent)

    def _move_origin(self, at_s: float, fade: float) -> None:
        """Count in uses of now; what has faded to nothing is forgotten."""
        left = {key: uses * fade for key, uses in self._counts.items()}
        self._counts = {key: uses for key, uses in left.items() if uses > 0}
        self._places = {key: self._places[key] for key in self._counts}
        self._origin_s = at_s

    def _rank(self, key: Key) -> tuple[float, int]:
        return -self._counts[key], self._places[key][0]

    def _forget_colder(self) -> None:
        kept = sorted(self._counts, key=self._rank)[: (self._limit + 1) // 2]
        self._counts = {key: self._counts[key] for key in kept}
        self._places = {key: self._places[key] for key in kept}
