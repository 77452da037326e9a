"""The residency state of one tier: which slot holds which block, and who holds the slot.

One owner, no locks, no clock. Changes come in batches: sequences of slots for one prefix.
A slot's life:

    FREE ──reserve──▶ RESERVED ──publish──▶ PUBLISHED ──retire──▶ RETIRING ──▶ FREE
                         │                      │                    (last lease gone:
                         └──abandon──▶ FREE     └──quarantine──┐      generation + 1)
                                                               ▼
                                                          QUARANTINED

Order of eviction: unpublish the key, wait until no lease is left, raise the generation,
free. A reader that holds (slot, generation) from before gets nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum

import numpy as np

from pagoda.core.identity import Key


class SlotState(IntEnum):
    """Where a slot is in its life."""

    FREE = 0
    RESERVED = 1  # being filled; no key leads to it
    PUBLISHED = 2  # a key leads to it
    RETIRING = 3  # no key leads to it, but a lease still holds it
    QUARANTINED = 4  # held a bad block; not used again while this process lives


class TierState:
    """Slots, keys, generations and leases of one tier of `slots` equal slots."""

    def __init__(self, name: str, slots: int) -> None:
        assert slots >= 0, "a tier has no negative number of slots"
        self.name = name
        self.slots = slots
        self._state = np.zeros(slots, dtype=np.uint8)
        self._generation = np.zeros(slots, dtype=np.uint64)
        self._leases = np.zeros(slots, dtype=np.int32)
        self._keys: list[Key | None] = [None] * slots
        self._index: dict[Key, int] = {}
        self._free: deque[int] = deque(range(slots))

    # Queries: they change nothing.

    def prefix(self, keys: Sequence[Key]) -> list[int]:
        """Slots of the longest published prefix of `keys`."""
        found: list[int] = []
        for key in keys:
            slot = self._index.get(key)
            if slot is None:
                break
            found.append(slot)
        return found

    def slot_of(self, key: Key) -> int | None:
        """The slot that `key` leads to, if it is published."""
        return self._index.get(key)

    def key_of(self, slot: int) -> Key | None:
        """The key of a published slot."""
        return self._keys[slot]

    def state_of(self, slot: int) -> SlotState:
        return SlotState(self._state[slot])

    def generation(self, slot: int) -> int:
        return int(self._generation[slot])

    def leased(self, slot: int) -> bool:
        return bool(self._leases[slot] > 0)

    def free_count(self) -> int:
        return len(self._free)

    def published_count(self) -> int:
        return len(self._index)

    def count(self, state: SlotState) -> int:
        return int(np.count_nonzero(self._state == state))

    def evictable_count(self) -> int:
        """Published slots that nobody holds."""
        return int(np.count_nonzero((self._state == SlotState.PUBLISHED) & (self._leases == 0)))

    def lease_count(self) -> int:
        """Leases held on all slots together."""
        return int(self._leases.sum())

    def published(self) -> Iterator[tuple[Key, int]]:
        return iter(self._index.items())

    # Transitions, in batches.

    def reserve(self, count: int) -> list[int]:
        """Take up to `count` free slots for filling, each with one lease for its writer."""
        slots = [self._free.popleft() for _ in range(min(count, len(self._free)))]
        for slot in slots:
            assert self._state[slot] == SlotState.FREE, f"{self.name}: slot {slot} is not free"
            assert self._leases[slot] == 0, f"{self.name}: free slot {slot} is leased"
            self._state[slot] = SlotState.RESERVED
            self._leases[slot] = 1
        return slots

    def publish(self, slots: Sequence[int], keys: Sequence[Key]) -> list[int]:
        """Let keys lead to filled slots; returns the slots that were published.

        A key that already leads elsewhere keeps its slot: the newcomer stays reserved, and
        its writer abandons it. The writers' leases stay.
        """
        done: list[int] = []
        for slot, key in zip(slots, keys, strict=True):
            assert self._state[slot] == SlotState.RESERVED, f"{self.name}: slot {slot} not reserved"
            if key in self._index:
                continue
            self._index[key] = slot
            self._keys[slot] = key
            self._state[slot] = SlotState.PUBLISHED
            done.append(slot)
        return done

    def lease(self, slots: Iterable[int]) -> None:
        """Hold published slots; whoever leases releases."""
        for slot in slots:
            assert self._state[slot] == SlotState.PUBLISHED, f"{self.name}: slot {slot} unpublished"
            self._leases[slot] += 1

    def release(self, slots: Iterable[int]) -> list[int]:
        """Give leases back; returns the slots that became free by it."""
        freed: list[int] = []
        for slot in slots:
            assert self._leases[slot] > 0, f"{self.name}: slot {slot} has no lease to release"
            self._leases[slot] -= 1
            if self._leases[slot] == 0 and self._settle(slot):
                freed.append(slot)
        return freed

    def abandon(self, slots: Iterable[int]) -> None:
        """Give reserved slots back unfilled, with their writers' leases."""
        for slot in slots:
            assert self._state[slot] == SlotState.RESERVED, f"{self.name}: slot {slot} not reserved"
            assert self._leases[slot] == 1, f"{self.name}: reserved slot {slot} is shared"
            self._leases[slot] = 0
            self._settle(slot)

    def retire(self, slots: Iterable[int]) -> list[int]:
        """Evict: unpublish now, free once no lease is left; returns the slots freed at once."""
        freed: list[int] = []
        for slot in slots:
            self._unpublish(slot)
            self._state[slot] = SlotState.RETIRING
            if self._leases[slot] == 0 and self._settle(slot):
                freed.append(slot)
        return freed

    def quarantine(self, slots: Iterable[int]) -> None:
        """Take slots out of service: no key leads to them, nobody reserves them again."""
        for slot in slots:
            if self._state[slot] == SlotState.PUBLISHED:
                self._unpublish(slot)
            assert self._state[slot] != SlotState.FREE, f"{self.name}: slot {slot} is free"
            self._state[slot] = SlotState.QUARANTINED
            self._generation[slot] += np.uint64(1)

    def adopt(self, entries: Sequence[tuple[int, Key]], *, generations: Sequence[int]) -> None:
        """Publish what a scan found in an untouched tier; every later reuse gets a generation
        above all of these, whichever headers were lost."""
        assert len(self._free) == self.slots, f"{self.name}: adopt comes before any other use"
        floor = max(generations, default=-1) + 1
        self._generation[:] = floor
        for (slot, key), generation in zip(entries, generations, strict=True):
            assert key not in self._index, f"{self.name}: a scan names each key once"
            self._index[key] = slot
            self._keys[slot] = key
            self._state[slot] = SlotState.PUBLISHED
            self._generation[slot] = generation
        self._free = deque(int(slot) for slot in np.flatnonzero(self._state == SlotState.FREE))

    def check_invariants(self) -> None:
        """Sum everything up; an AssertionError names what does not add up."""
        states = self._state
        free = list(self._free)
        assert len(free) == len(set(free)), f"{self.name}: a slot is twice in the free list"
        assert set(free) == set(np.flatnonzero(states == SlotState.FREE).tolist()), (
            f"{self.name}: free list and states disagree"
        )
        published = set(np.flatnonzero(states == SlotState.PUBLISHED).tolist())
        assert published == set(self._index.values()), f"{self.name}: index and states disagree"
        assert len(self._index) == len(published), f"{self.name}: two keys lead to one slot"
        for key, slot in self._index.items():
            assert self._keys[slot] == key, f"{self.name}: slot {slot} carries another key"
        assert sum(key is not None for key in self._keys) == len(self._index), (
            f"{self.name}: an unpublished slot keeps a key"
        )
        assert (self._leases >= 0).all(), f"{self.name}: a lease count is negative"
        assert (self._leases[states == SlotState.FREE] == 0).all(), f"{self.name}: free but leased"
        assert (self._leases[states == SlotState.RESERVED] == 1).all(), (
            f"{self.name}: a reserved slot has exactly its writer's lease"
        )
        assert (self._leases[states == SlotState.RETIRING] > 0).all(), (
            f"{self.name}: a retiring slot without lease was not freed"
        )

    def _unpublish(self, slot: int) -> None:
        assert self._state[slot] == SlotState.PUBLISHED, f"{self.name}: slot {slot} not published"
        key = self._keys[slot]
        assert key is not None, f"{self.name}: published slot {slot} has no key"
        del self._index[key]
        self._keys[slot] = None

    def _settle(self, slot: int) -> bool:
        """With the last lease gone, a retiring or abandoned slot becomes free."""
        if self._state[slot] not in (SlotState.RETIRING, SlotState.RESERVED):
            return False
        self._generation[slot] += np.uint64(1)
        self._state[slot] = SlotState.FREE
        self._free.append(slot)
        return True
