"""The index of a tier: from a block's key to its slot.

Compiled where it can be (12 bytes of buckets a slot beside the 32 of the key, and one call for a
whole prefix), a dictionary otherwise; tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from pagoda.core import native
from pagoda.core.identity import DIGEST_BYTES, Key

Leases = NDArray[np.int32]
States = NDArray[np.uint8]


class KeyIndex(Protocol):
    """Keys and slots, one to one. A key is 32 bytes, a slot lies in [0, slots)."""

    def __len__(self) -> int: ...

    def prefix(self, keys: Sequence[Key], states: States, wanted: int) -> list[int]:
        """Slots of the longest prefix of `keys` that is known and whose slots are all in the
        state `wanted`: an entry that outlived its block leads nowhere."""
        ...

    def lease_prefix(
        self, keys: Sequence[Key], states: States, wanted: int, leases: Leases
    ) -> list[int]:
        """The same, with one more lease on each slot found."""
        ...

    def get(self, key: Key) -> int | None:
        """The slot that `key` leads to."""
        ...

    def add(self, key: Key, slot: int) -> bool:
        """Let `key` lead to `slot`, and no other key; False, and nothing changes, if it leads
        somewhere already."""
        ...

    def add_many(self, keys: bytes, slots: NDArray[np.int32]) -> None:
        """Add keys that lie one behind the other; ValueError if one is known already."""
        ...

    def remove(self, slot: int) -> None:
        """Forget the key that leads to `slot`; KeyError if none does."""
        ...

    def key_at(self, slot: int) -> Key:
        """The last key that led to `slot`; zeros if none ever did."""
        ...


class DictIndex:
    """The reference, and what is used where nothing could be compiled."""

    def __init__(self, slots: int) -> None:
        self._slots: dict[Key, int] = {}
        self._keys: list[Key] = [Key(bytes(DIGEST_BYTES))] * slots

    def __len__(self) -> int:
        return len(self._slots)

    def prefix(self, keys: Sequence[Key], states: States, wanted: int) -> list[int]:
        found: list[int] = []
        for key in keys:
            slot = self._slots.get(key)
            if slot is None or states[slot] != wanted:
                break
            found.append(slot)
        return found

    def lease_prefix(
        self, keys: Sequence[Key], states: States, wanted: int, leases: Leases
    ) -> list[int]:
        found = self.prefix(keys, states, wanted)
        for slot in found:
            leases[slot] += 1
        return found

    def get(self, key: Key) -> int | None:
        return self._slots.get(key)

    def add(self, key: Key, slot: int) -> bool:
        if key in self._slots:
            return False
        if self._slots.get(self._keys[slot]) == slot:
            del self._slots[self._keys[slot]]
        self._slots[key] = slot
        self._keys[slot] = key
        return True

    def add_many(self, keys: bytes, slots: NDArray[np.int32]) -> None:
        for number, slot in enumerate(slots.tolist()):
            key = Key(keys[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES])
            if not self.add(key, slot):
                raise ValueError(f"entry {number} repeats a key")

    def remove(self, slot: int) -> None:
        if self._slots.get(self._keys[slot]) != slot:
            raise KeyError(f"no key leads to slot {slot}")
        del self._slots[self._keys[slot]]

    def key_at(self, slot: int) -> Key:
        return self._keys[slot]


def make_index(slots: int) -> KeyIndex:
    """The fastest index there is here."""
    if native.TABLES is None:
        return DictIndex(slots)
    return cast(KeyIndex, native.TABLES.KeyIndex(slots))
