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

All of it lies in flat tables of 17 bytes a slot, beside the index (core.keyindex).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pagoda.core import native
from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases, make_index
from pagoda.core.ring import SlotRing


class SlotState(IntEnum):
    """Where a slot is in its life."""

    FREE = 0
    RESERVED = 1  # being filled; no key leads to it
    PUBLISHED = 2  # a key leads to it
    RETIRING = 3  # no key leads to it, but a lease still holds it
    QUARANTINED = 4  # held a bad block; not used again while this process lives


# Plain integers: comparing with an IntEnum's member takes four times as long.
_FREE, _RESERVED, _PUBLISHED, _RETIRING, _QUARANTINED = (int(state) for state in SlotState)


class TierState:
    """Slots, keys, generations and leases of one tier of `slots` equal slots."""

    def __init__(self, name: str, slots: int) -> None:
        assert slots >= 0, "a tier has no negative number of slots"
        self.name = name
        self.slots = slots
        self.leases: Leases = np.zeros(slots, dtype=np.int32)  # of each slot; for reading
        self.stale = 0  # entries met that led to a slot without its block; above 0 is a defect
        self._states = np.zeros(slots, dtype=np.uint8)
        self._generations = np.zeros(slots, dtype=np.uint64)
        self._index = make_index(slots)
        self._free = SlotRing(slots)
        self._release = release_leases if native.TABLES is None else native.TABLES.release
        # The same memory, for one slot at a time: indexing a memoryview is faster.
        self._state_at = self._states.data
        self._generation_at = self._generations.data
        self._lease_at = self.leases.data

    # Queries: they change nothing, but for an entry that should not be there (`stale`).

    def prefix(self, keys: Sequence[Key]) -> list[int]:
        """Slots of the longest published prefix of `keys`."""
        found = self._index.prefix(keys, self._states, _PUBLISHED)
        if len(found) < len(keys):
            self._drop_stale(keys[len(found)])
        return found

    def slot_of(self, key: Key) -> int | None:
        """The slot that `key` leads to, if it is published."""
        slot = self._index.get(key)
        if slot is None or self._state_at[slot] == _PUBLISHED:
            return slot
        self._drop_stale(key)
        return None

    def key_of(self, slot: int) -> Key | None:
        """The key of a published slot."""
        return self._index.key_at(slot) if self._state_at[slot] == _PUBLISHED else None

    def state_of(self, slot: int) -> SlotState:
        return SlotState(self._state_at[slot])

    def generation(self, slot: int) -> int:
        return self._generation_at[slot]

    def leased(self, slot: int) -> bool:
        return self._lease_at[slot] > 0

    def free_count(self) -> int:
        return len(self._free)

    def published_count(self) -> int:
        return len(self._index)

    def count(self, state: SlotState) -> int:
        return int(np.count_nonzero(self._states == state))

    def evictable_count(self) -> int:
        """Published slots that nobody holds."""
        return int(np.count_nonzero((self._states == _PUBLISHED) & (self.leases == 0)))

    def lease_count(self) -> int:
        """Leases held on all slots together."""
        return int(self.leases.sum())

    def published_mask(self) -> NDArray[np.bool_]:
        """Which slots a key leads to, by slot."""
        mask: NDArray[np.bool_] = self._states == _PUBLISHED
        return mask

    def published_slots(self) -> list[int]:
        """Slots that a key leads to, in ascending order."""
        found: list[int] = np.flatnonzero(self._states == _PUBLISHED).tolist()
        return found

    def published(self) -> Iterator[tuple[Key, int]]:
        """(key, slot) of every published block, by slot."""
        return ((self._index.key_at(slot), slot) for slot in self.published_slots())

    # Transitions, in batches.

    def reserve(self, count: int) -> list[int]:
        """Take up to `count` free slots for filling, each with one lease for its writer."""
        slots = self._free.take(count)
        for slot in slots:
            assert self._state_at[slot] == _FREE, f"{self.name}: slot {slot} is not free"
            assert self._lease_at[slot] == 0, f"{self.name}: free slot {slot} is leased"
            self._state_at[slot] = _RESERVED
            self._lease_at[slot] = 1
        return slots

    def publish(self, slots: Sequence[int], keys: Sequence[Key]) -> list[int]:
        """Let keys lead to filled slots; returns the slots that were published.

        A key that already leads elsewhere keeps its slot: the newcomer stays reserved, and
        its writer abandons it. The writers' leases stay.
        """
        done: list[int] = []
        for slot, key in zip(slots, keys, strict=True):
            assert self._state_at[slot] == _RESERVED, f"{self.name}: slot {slot} not reserved"
            known = not self._index.add(key, slot)
            if known and self.slot_of(key) is None:  # it led nowhere
                known = not self._index.add(key, slot)
            if not known:
                self._state_at[slot] = _PUBLISHED
                done.append(slot)
        return done

    def lease_prefix(self, keys: Sequence[Key]) -> list[int]:
        """Look up and lease the longest published prefix of `keys`."""
        found = self._index.lease_prefix(keys, self._states, _PUBLISHED, self.leases)
        if len(found) < len(keys):
            self._drop_stale(keys[len(found)])
        return found

    def lease(self, slots: Sequence[int]) -> None:
        """Hold slots that are in use, though no key may lead to them any more: retiring ones
        then stay out of reuse for longer. Whoever leases releases."""
        for slot in slots:
            held = self._state_at[slot] in (_PUBLISHED, _RETIRING)
            assert held, f"{self.name}: slot {slot} is not in use"
            self._lease_at[slot] += 1

    def release(self, slots: Sequence[int]) -> list[int]:
        """Give leases back; returns the slots that became free by it."""
        last = self._release(slots, self.leases, self._states, _PUBLISHED)
        return [slot for slot in last if self._settle(slot)]

    def abandon(self, slots: Sequence[int]) -> None:
        """Give reserved slots back unfilled, with their writers' leases."""
        for slot in slots:
            assert self._state_at[slot] == _RESERVED, f"{self.name}: slot {slot} not reserved"
            assert self._lease_at[slot] == 1, f"{self.name}: reserved slot {slot} is shared"
            self._lease_at[slot] = 0
            self._settle(slot)

    def retire(self, slots: Sequence[int]) -> list[int]:
        """Evict: unpublish now, free once no lease is left; returns the slots freed at once."""
        freed: list[int] = []
        for slot in slots:
            self._unpublish(slot)
            self._state_at[slot] = _RETIRING
            if self._lease_at[slot] == 0 and self._settle(slot):
                freed.append(slot)
        return freed

    def quarantine(self, slots: Sequence[int]) -> None:
        """Take slots out of service: no key leads to them, nobody reserves them again."""
        for slot in slots:
            if self._state_at[slot] == _PUBLISHED:
                self._unpublish(slot)
            assert self._state_at[slot] != _FREE, f"{self.name}: slot {slot} is free"
            self._state_at[slot] = _QUARANTINED
            self._generation_at[slot] += 1

    def adopt(
        self, slots: NDArray[np.int32], keys: bytes, *, generations: NDArray[np.uint64], floor: int
    ) -> None:
        """Publish what a scan found in an untouched tier: `slots` with their keys, one behind
        the other, and generations. Every other slot starts at generation `floor`, above all
        that any header named, whether it was sound or has been dropped."""
        assert len(self._free) == self.slots, f"{self.name}: adopt comes before any other use"
        assert (generations < floor).all(), f"{self.name}: the floor lies above what was found"
        self._generations[:] = floor
        self._index.add_many(keys, slots)
        self._states[slots] = _PUBLISHED
        self._generations[slots] = generations
        self._free = SlotRing.of(np.flatnonzero(self._states == _FREE), size=self.slots)

    def check_invariants(self) -> None:
        """Sum everything up; an AssertionError names what does not add up."""
        states, name = self._states, self.name
        free = self._free.slots()
        assert len(free) == len(set(free)), f"{name}: a slot is twice in the free list"
        assert set(free) == set(np.flatnonzero(states == _FREE).tolist()), (
            f"{name}: free list and states disagree"
        )
        published = self.published_slots()
        assert len(published) == len(self._index), f"{name}: index and states disagree"
        for slot in published:
            found = self._index.get(self._index.key_at(slot))
            assert found == slot, f"{name}: the key of slot {slot} leads to {found}"
        assert (self.leases >= 0).all(), f"{name}: a lease count is negative"
        assert (self.leases[states == _FREE] == 0).all(), f"{name}: free but leased"
        assert (self.leases[states == _RESERVED] == 1).all(), (
            f"{name}: a reserved slot has exactly its writer's lease"
        )
        assert (self.leases[states == _RETIRING] > 0).all(), (
            f"{name}: a retiring slot without lease was not freed"
        )

    def _drop_stale(self, key: Key) -> None:
        """Should a key still lead to a slot that lost its block, forget it: that is a defect
        of ours, to be counted, and no reason to hand out the slot or to stop."""
        slot = self._index.get(key)
        if slot is not None:
            self._index.remove(slot)
            self.stale += 1

    def _unpublish(self, slot: int) -> None:
        assert self._state_at[slot] == _PUBLISHED, f"{self.name}: slot {slot} not published"
        self._index.remove(slot)

    def _settle(self, slot: int) -> bool:
        """With the last lease gone, a retiring or abandoned slot becomes free."""
        if self._state_at[slot] not in (_RETIRING, _RESERVED):
            return False
        self._generation_at[slot] += 1
        self._state_at[slot] = _FREE
        self._free.put(slot)
        return True


def release_leases(
    slots: Sequence[int], leases: Leases, states: NDArray[np.uint8], settled: int
) -> list[int]:
    """Take one lease from each slot; returns those whose last lease went and whose state is
    not `settled`. ValueError, with nothing taken, if a slot has no lease to release."""
    last: list[int] = []
    for done, slot in enumerate(slots):
        if leases[slot] <= 0:
            for earlier in slots[:done]:
                leases[earlier] += 1
            raise ValueError(f"slot {slot} has no lease to release")
        leases[slot] -= 1
        if leases[slot] == 0 and states[slot] != settled:
            last.append(slot)
    return last
