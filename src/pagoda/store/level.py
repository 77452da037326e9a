"""A tier under the store's control: its sealed bytes, its residency, and whether to trust it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagoda.core.errors import TierError
from pagoda.core.events import (
    Evicted,
    Observer,
    Quarantined,
    Reason,
    Refused,
)
from pagoda.core.identity import Key
from pagoda.core.policy import Policy
from pagoda.core.residency import Residency
from pagoda.core.state import TierState
from pagoda.store.copies import newest_copies
from pagoda.store.trust import Trust
from pagoda.store.wear import Wear
from pagoda.tiers.scanning import Found
from pagoda.tiers.sealed import Order, SealedTier, reason_of

RUN_BYTES = 4 << 20  # one I/O order moves about this much
# What is read of a drive: each order costs an I/O thread two turns of the interpreter lock, each
# of which an engine's scheduler that computes in Python may hold for 5 ms.
_DRIVE_READ_BYTES = 16 << 20
_FIRST_GUESS_BYTES_A_SECOND = 1e9


class Traffic:
    """How much I/O is under way, and how fast this tier writes."""

    def __init__(self) -> None:
        self.flying_bytes = 0
        self._bytes_a_second = _FIRST_GUESS_BYTES_A_SECOND

    def seconds(self) -> float:
        """How long what is under way takes, at the speed of late."""
        return self.flying_bytes / self._bytes_a_second

    def measured(self, size_bytes: int, seconds: float) -> None:
        """A write of this size took this long."""
        if seconds > 0 and size_bytes > 0:
            self._bytes_a_second += (size_bytes / seconds - self._bytes_a_second) / 8


class Level:
    """One tier of the store: state, policy, standing and write budget of its own, so that
    whatever happens to it costs only its own blocks. All methods run in the owner's thread."""

    def __init__(
        self,
        sealed: SealedTier,
        policy: Policy,
        observer: Observer,
        *,
        wear: Wear | None = None,
        memory: bool = True,
    ) -> None:
        self.sealed = sealed
        self.name = sealed.name
        self.residency = Residency(TierState(sealed.name, sealed.geometry.slots), policy)
        self.state = self.residency.state
        self.run_blocks = max(1, RUN_BYTES // sealed.geometry.slot_bytes)
        most_bytes = RUN_BYTES if memory else _DRIVE_READ_BYTES
        self.read_blocks = max(1, most_bytes // sealed.geometry.slot_bytes)
        self.trust = Trust(sealed.name, observer)
        self.wear = wear or Wear()
        self.memory = memory
        self.traffic = Traffic()
        self._observer = observer
        self._stale_told = 0

    def rebuild(self, now_s: float) -> Found:
        """Index what an earlier process committed: newest copy of each key, oldest first.

        Returns what was found; headers that are damaged, or of older copies, are erased. Blocks
        on I/O; raises TierError when the headers cannot be read.
        """
        found = self.sealed.scan()
        keep, stale = newest_copies(found)
        keys, parents = (
            np.frombuffer(column, dtype="V32")[keep] for column in (found.keys, found.parents)
        )
        self.residency.adopt(
            found.slots[keep],
            keys.tobytes(),
            parents.tobytes(),
            generations=found.generations[keep],
            floor=found.floor,
        )
        self.erase(stale + found.damaged, now_s)
        return found

    def readable(self, now_s: float) -> bool:
        return self.trust.readable(now_s)

    def writable(self, now_s: float) -> bool:
        return self.trust.writable(now_s)

    def reserve(self, count: int) -> list[int]:
        """Slots for filling; evicts, and tells of it."""
        before = self.residency.evicted
        slots = self.residency.reserve(count)
        if self.residency.evicted > before:
            self._observer(Evicted(tier=self.name, blocks=self.residency.evicted - before))
        return slots

    def orders(self, slots: Sequence[int], keys: Sequence[Key]) -> list[Order]:
        """What to read from leased slots."""
        return [
            Order(slot, self.state.generation(slot), key)
            for slot, key in zip(slots, keys, strict=True)
        ]

    def tell_stale(self) -> None:
        """Tell of index entries that led to a slot without its block. It takes a defect of ours
        to make one; nobody was handed the slot."""
        if self.state.stale > self._stale_told:
            blocks = self.state.stale - self._stale_told
            self._stale_told = self.state.stale
            self._observer(Refused(tier=self.name, blocks=blocks, reason=Reason.STALE))

    def read_failed(self, slot: int, reason: Reason, now_s: float) -> None:
        """A leased slot held a bad block, or none that could be read: it leaves service."""
        if self.state.key_of(slot) is not None:
            self.residency.quarantine([slot])
            self._observer(Quarantined(tier=self.name, slots=1, reason=reason))
        if reason is Reason.IO_ERROR:
            self.trust.read_failed(reason, now_s)

    def read_late(self, hanging: Sequence[int], now_s: float) -> None:
        """Reads are late; the blocks of leased slots whose I/O hangs are not found again."""
        slots = dict.fromkeys(hanging)  # requests that share a prefix name its slots twice
        self.residency.retire([slot for slot in slots if self.state.key_of(slot) is not None])
        self.trust.read_failed(Reason.TIMEOUT, now_s)

    def write_failed(self, error: TierError, now_s: float) -> None:
        """Writing stops for a while; what is there can still be read."""
        self.trust.write_failed(reason_of(error), error.message, now_s)

    def write_late(self, now_s: float) -> None:
        """A write or an erasing hangs; its slots stay taken until it has ended."""
        self.trust.write_failed(Reason.TIMEOUT, "a write is late", now_s)

    def erase(self, slots: list[int], now_s: float) -> None:
        """Erase headers of unpublished slots at the start. One that cannot be erased leads to
        nothing in this process, and is judged anew in the next. Blocks on I/O."""
        try:
            self.sealed.free(slots)
        except TierError as error:
            self.write_failed(error, now_s)

    def withdraw(self, slots: Sequence[int]) -> None:
        """Unpublish blocks whose headers are about to be erased. The slots are leased until
        then, so that no new block can be erased in their place."""
        self.state.lease(slots)
        self.residency.retire(slots)
