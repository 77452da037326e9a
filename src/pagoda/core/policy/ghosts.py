"""Keys that are remembered when their blocks are gone, up to a number of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

from pagoda.core.identity import Key

V = TypeVar("V")


class Ghosts(Generic[V]):
    """Keys with what is known of each; the one that was put first is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[Key, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    def put(self, key: Key, value: V) -> None:
        """Remember a key as the newest."""
        self._known[key] = value
        self._known.move_to_end(key)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)

    def drop_oldest(self) -> None:
        """Forget the key that was put first; KeyError if there is none."""
        self._known.popitem(last=False)

    def put_all(self, keys: Iterable[Key], value: V) -> None:
        """Remember several keys, the last as the newest."""
        known = self._known
        for key in keys:
            known[key] = value
            known.move_to_end(key)
        while len(known) > self._limit:
            known.popitem(last=False)

    def get(self, key: Key) -> V | None:
        """What is known of a key."""
        return self._known.get(key)

    def get_all(self, keys: Iterable[Key]) -> list[V | None]:
        """What is known of several keys."""
        return list(map(self._known.get, keys))

    def leading(self, keys: Iterable[Key]) -> int:
        """How many keys are known before the first that is not."""
        known = self._known
        count = 0
        for key in keys:
            if key not in known:
                break
            count += 1
        return count

    def take(self, key: Key) -> V | None:
        """What is known of a key, which is forgotten."""
        return self._known.pop(key, None)
