"""Staging slots: memory for bytes on their way between a device and the tiers below.

loads    slots only for what comes up
stores   slots only for what goes down, so that neither direction starves the other

A spill is written out of its slot while the next one fills; so a ring holds twice what may be
in flight at once. Slots are used in turn, the one that rested longest first.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

STAGING_SLOT_BYTES = 64 << 20


class Use(StrEnum):
    """Which way the bytes travel."""

    LOAD = "load"
    STORE = "store"


class StagingRing:
    """Slots of one region, given out and taken back by the owner of the store alone.

    A slot must come back only when no I/O thread and no device can touch it any more.
    """

    def __init__(
        self, memory: memoryview, *, loads: int, stores: int, slot_bytes: int = STAGING_SLOT_BYTES
    ) -> None:
        assert len(memory) == (loads + stores) * slot_bytes, "the ring fills its memory"
        cuts = [memory[i * slot_bytes : (i + 1) * slot_bytes] for i in range(loads + stores)]
        self.slot_bytes = slot_bytes
        self._resting = {Use.LOAD: deque(cuts[:loads]), Use.STORE: deque(cuts[loads:])}
        self._flying: dict[int, Use] = {}

    def take(self, use: Use) -> memoryview | None:
        """A slot for one direction; None when all of its slots are in flight."""
        if not self._resting[use]:
            return None
        slot = self._resting[use].popleft()
        self._flying[id(slot)] = use
        return slot

    def give(self, slot: memoryview) -> None:
        """Take back a slot that `take` gave."""
        use = self._flying.pop(id(slot), None)
        assert use is not None, "this slot is not in flight"
        self._resting[use].append(slot)

    def flying(self, use: Use) -> int:
        """How many slots of a direction are in flight."""
        return sum(found is use for found in self._flying.values())
