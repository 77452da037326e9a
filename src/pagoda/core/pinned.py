"""Which slots of one tier hold pinned blocks.

Pins are by key: a block that is not there yet is pinned once it is published, and a slot that
loses its block loses its pin. A pin is no lease: whoever makes room counts it like one, so that
policies need not know of pins, and takes pinned blocks all the same when nothing else is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from typing import Protocol

import numpy as np

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases


class Slots(Protocol):
    """What pins ask of a tier's state (TierState)."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int: ...

    def slot_of(self, key: Key) -> int | None: ...

    def published(self) -> Iterable[tuple[Key, int]]: ...


class PinnedSlots:
    """The pins over `state`, whose owner tells of every block that comes and goes."""

    def __init__(self, state: Slots) -> None:
        self._state = state
        self._keys: set[Key] = set()
        self._mask: Leases = np.zeros(state.slots, dtype=np.int32)

    @property
    def keys(self) -> Set[Key]:
        """The pinned keys; for reading."""
        return self._keys

    @property
    def mask(self) -> Leases | None:
        """1 for each slot that holds a pinned block; None when no key is pinned."""
        return self._mask if self._keys else None

    def pins(self, key: Key) -> bool:
        """Whether a block is pinned, here or not."""
        return key in self._keys

    def count(self) -> int:
        """Pinned blocks that are here."""
        return int(self._mask.sum())

    def among(self, slots: Sequence[int]) -> int:
        """How many of these slots hold a pinned block."""
        return int(self._mask[slots].sum()) if self._keys and slots else 0

    def replace(self, keys: Collection[Key]) -> None:
        """Pin exactly these keys."""
        self._keys = set(keys)
        self._mask[:] = 0
        self._mark(self._keys, 1)

    def add(self, keys: Collection[Key]) -> None:
        """Pin these as well."""
        self._keys.update(keys)
        self._mark(keys, 1)

    def remove(self, keys: Collection[Key]) -> None:
        """Pin these no more."""
        self._keys.difference_update(keys)
        self._mark(keys, 0)

    def published(self, slots: Sequence[int], keys: Sequence[Key]) -> None:
        """Blocks came."""
        if self._keys:
            for slot, key in zip(slots, keys, strict=True):
                if key in self._keys:
                    self._mask[slot] = 1

    def gone(self, slots: Sequence[int]) -> None:
        """Slots lost their blocks."""
        if self._keys and slots:
            self._mask[slots] = 0

    def check_invariants(self) -> None:
        """The mask says of every slot what its key says."""
        found = {slot for key, slot in self._state.published() if key in self._keys}
        marked = set(np.flatnonzero(self._mask).tolist())
        assert marked == found, f"{self._state.name}: pins are out of step"

    def _mark(self, keys: Collection[Key], value: int) -> None:
        held = (self._state.slot_of(key) for key in keys)
        self._mask[[slot for slot in held if slot is not None]] = value
