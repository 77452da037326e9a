"""A cache as it is written the first time: no seals, no generations, an exception on mismatch.

It exists to show what one wrong line does. `off_by_one` leaves the last victim of each eviction
in the index while its place goes to another block; from then on the old key leads to the new
block's bytes, and they are served. A block carries its key's stamp, which is compared once in a
while; a mismatch raises, and a service that is built on this store has nowhere to go: every
request fails until somebody empties the store by hand.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from pagoda.core.errors import PagodaError
from pagoda.core.identity import Key
from pagoda.lab.incident.traffic import true_bytes, wrong_blocks

_STAMPS_COMPARED_EVERY = 64  # reads
_EVICTED_AT_ONCE = 8


class CacheCorruption(PagodaError):
    """The store found a block of another key where it looked for one."""


class LegacyCache:
    """Blocks in one piece of memory, found through a dictionary, least recently used out."""

    def __init__(self, blocks: int, block_bytes: int, *, off_by_one: bool) -> None:
        self._memory = memoryview(bytearray(blocks * block_bytes))
        self._block_bytes = block_bytes
        self._off_by_one = off_by_one
        self._slots: OrderedDict[Key, int] = OrderedDict()
        self._stamps: list[Key | None] = [None] * blocks
        self._free = list(range(blocks))
        self._reads = 0
        self._corrupt = False

    def get(self, key: Key) -> memoryview | None:
        """The block's bytes, where the index says they are. Raises CacheCorruption."""
        slot = self._slots.get(key)
        if slot is None:
            return None
        self._slots.move_to_end(key)
        self._reads += 1
        if self._reads % _STAMPS_COMPARED_EVERY == 0 and self._stamps[slot] != key:
            self._corrupt = True
        if self._corrupt:
            raise CacheCorruption("Cache corruption detected")
        return self._memory[slot * self._block_bytes : (slot + 1) * self._block_bytes]

    def put(self, key: Key, data: bytes) -> memoryview:
        """Store a block; evicts when all places are taken."""
        if not self._free:
            self._evict()
        slot = self._free.pop()
        self._slots[key] = slot
        self._stamps[slot] = key
        block = self._memory[slot * self._block_bytes : (slot + 1) * self._block_bytes]
        block[:] = data
        return block

    def _evict(self) -> None:
        victims = [key for key, _ in zip(self._slots, range(_EVICTED_AT_ONCE), strict=False)]
        self._free += [self._slots[key] for key in victims]
        forgotten = victims[:-1] if self._off_by_one else victims
        for key in forgotten:
            del self._slots[key]


class LegacyPath:
    """Requests over that cache: found blocks are served, missing ones are computed."""

    refused = 0  # it never refuses

    def __init__(self, blocks: int, block_bytes: int, *, off_by_one: bool) -> None:
        self._cache = LegacyCache(blocks, block_bytes, off_by_one=off_by_one)
        self._block_bytes = block_bytes
        self._asked: list[tuple[int, Sequence[Key]]] = []
        self.wrong = 0  # blocks served whose bytes are not the true ones
        self.failed = 0  # requests that ended with the exception

    @property
    def waiting(self) -> int:
        return len(self._asked)

    def fill(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._block(key)

    def settle(self) -> None:
        """Everything is done at once here."""

    def begin(self, requests: Sequence[tuple[int, Sequence[Key]]]) -> None:
        self._asked += requests

    def step(self) -> list[int]:
        asked, self._asked = self._asked, []
        return [number for number, keys in asked if self._serve(keys)]

    def _serve(self, keys: Sequence[Key]) -> bool:
        try:
            blocks = [self._block(key) for key in keys]
        except CacheCorruption:
            self.failed += 1
            return False
        self.wrong += wrong_blocks(keys, blocks, self._block_bytes)
        return True

    def _block(self, key: Key) -> memoryview:
        found = self._cache.get(key)
        return found or self._cache.put(key, true_bytes(key, self._block_bytes))
