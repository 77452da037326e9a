"""Shadows of a tier: what it would hold, and hit, under one policy alone. Keys without bytes.

A shadow fills when a request is over, as a tier does that finds room as it needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagoda.core.identity import ROOT, Key
from pagoda.core.policy.density import DensityOrder
from pagoda.core.policy.ghosts import Ghosts


class LruShadow:
    """Least recently used, tail first."""

    def __init__(self, slots: int) -> None:
        self._order: Ghosts[None] = Ghosts(slots)

    def hits(self, keys: Sequence[Key]) -> int:
        """How many leading blocks are there."""
        return self._order.leading(keys)

    def fill(self, chain: Sequence[Key], beside: Key | None) -> None:
        """A request leaves a chain, and perhaps a block beside it."""
        first = [] if beside is None else [beside]
        self._order.put_all([*first, *reversed(chain)], None)


class DensityShadow:
    """Hit density alone, from an order of what the tier holds now on. It learns nothing of its
    own."""

    def __init__(self, slots: int, order: DensityOrder) -> None:
        self.order = order
        taken = self.order.tracked()
        self._free = [slot for slot in range(slots) if slot not in taken]
        self._held = np.zeros(slots, dtype=np.int32)

    def fill(self, chain: Sequence[Key], beside: tuple[Key, Key] | None) -> None:
        """A request leaves a chain, and perhaps a block beside it, which comes with its parent;
        what is there of it stays."""
        slot_of = self.order.slot_of
        pairs = [*zip(chain, [ROOT, *chain], strict=False)]
        if beside is not None:
            pairs.append(beside)
        missing = [pair for pair in pairs if pair[0] not in slot_of]
        keys, parents = [key for key, _ in missing], [parent for _, parent in missing]
        if missing:
            del missing[len(self.order.admits(keys, parents, len(self._free))) :]
        held = [slot_of[key] for key, _ in pairs if key in slot_of]
        self._make_room(len(missing), held)
        slots = [self._free.pop() for _ in range(min(len(missing), len(self._free)))]
        new = missing[: len(slots)]
        self.order.insert(slots, [key for key, _ in new], [parent for _, parent in new])

    def _make_room(self, count: int, held: Sequence[int]) -> None:
        wanted = count - len(self._free)
        if wanted <= 0:
            return
        self._held[held] = 1
        victims = self.order.victims(wanted, self._held)
        self._held[held] = 0
        self.order.remove(victims)
        self._free += victims
