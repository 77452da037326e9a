"""What waits to be written into a rank."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pagoda.core.identity import Key
from pagoda.core.policy import Request
from pagoda.store.block import Block
from pagoda.store.level import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much may wait for each rank, and for how long; a write under way may take as long."""

    size_bytes: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class Source:
    """The leased slot of a level above that holds a block's bytes."""

    level: Level
    slot: int


@dataclass(slots=True)
class Pending:
    """A block in a queue. Without a `source` its bytes still lie with the caller; `release`
    gives source or caller's memory back."""

    block: Block
    release: Callable[[], object]
    until_s: float
    source: Source | None = None
    request: Request | None = None  # whose it is


@dataclass(frozen=True, slots=True)
class Ahead:
    """Keys that are waiting or under way, one chain with their parents, and how many of them are
    under way."""

    pairs: Sequence[tuple[Key, Key]]
    under_way: int


class WriteQueue:
    """First in, first out, bounded; knows which keys are waiting or under way."""

    def __init__(self, size_bytes: int) -> None:
        self._limit_bytes = size_bytes
        self._items: deque[Pending] = deque()
        self._keys: dict[Key, Key] = {}  # with their parents
        self._under_way: set[Key] = set()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: Key) -> bool:
        """Whether a block is waiting or under way."""
        return key in self._keys

    def add(self, item: Pending) -> bool:
        """Queue a block; False when there is no room."""
        size_bytes = len(item.block.payload)
        if self._items and self._size_bytes + size_bytes > self._limit_bytes:
            return False
        self._items.append(item)
        self._keys[item.block.key] = item.block.parent
        self._size_bytes += size_bytes
        return True

    def take(self, count: int) -> list[Pending]:
        """The next blocks; they are under way until `ended`."""
        taken = [self._items.popleft() for _ in range(min(count, len(self._items)))]
        self._size_bytes -= sum(len(item.block.payload) for item in taken)
        self._under_way.update(item.block.key for item in taken)
        return taken

    def overdue(self, now_s: float) -> Iterator[Pending]:
        """Take out, one by one, what has waited too long."""
        while self._items and self._items[0].until_s <= now_s:
            yield from self.take(1)

    def ended(self, key: Key) -> None:
        """A block was written, or given up."""
        self._keys.pop(key, None)
        self._under_way.discard(key)

    def ahead(self, key: Key) -> Ahead:
        """The blocks of a chain up to this one that have still to come."""
        pairs: list[tuple[Key, Key]] = []
        while key in self._keys:
            pairs.append((key, self._keys[key]))
            key = self._keys[key]
        return Ahead(pairs[::-1], sum(key in self._under_way for key, _ in pairs))
