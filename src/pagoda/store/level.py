"""A tier under the store's control: its sealed bytes, its residency, and whether to trust it."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.errors import TierError
from pagoda.core.events import (
    Degraded,
    Evicted,
    Observer,
    Quarantined,
    Reason,
)
from pagoda.core.identity import Key
from pagoda.core.policy import Policy
from pagoda.core.residency import Residency
from pagoda.core.state import TierState
from pagoda.seal.header import Seal
from pagoda.tiers.sealed import Order, SealedTier

RUN_BYTES = 4 << 20  # one I/O order moves about this much
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 80.0


class Pause:
    """A direction of I/O that failed is left alone for a while; each failure doubles it."""

    def __init__(self) -> None:
        self._until_s = 0.0
        self._length_s = _FIRST_PAUSE_S

    def active(self, now_s: float) -> bool:
        return now_s < self._until_s

    def failed(self, now_s: float) -> None:
        self._until_s = now_s + self._length_s
        self._length_s = min(2 * self._length_s, _LONGEST_PAUSE_S)

    def succeeded(self) -> None:
        self._length_s = _FIRST_PAUSE_S


class Level:
    """One tier of the store. All methods run in the owner's thread."""

    def __init__(self, sealed: SealedTier, policy: Policy, observer: Observer) -> None:
        self.sealed = sealed
        self.name = sealed.name
        self.residency = Residency(TierState(sealed.name, sealed.geometry.slots), policy)
        self.state = self.residency.state
        self.run_blocks = max(1, RUN_BYTES // sealed.geometry.slot_bytes)
        self._observer = observer
        self._reading = Pause()
        self._writing = Pause()

    def rebuild(self) -> tuple[int, int]:
        """Index what an earlier process committed: newest copy of each key, oldest first.

        Returns how many blocks were found, and how many headers were dropped as damaged or
        as older copies. Blocks on I/O; raises TierError.
        """
        sound, damaged = self.sealed.scan()
        newest: dict[Key, tuple[int, Seal]] = {}
        stale: list[int] = []
        for slot, seal in sorted(sound, key=lambda item: (item[1].created_ms, -item[1].depth)):
            if seal.key in newest:
                stale.append(newest.pop(seal.key)[0])
            newest[seal.key] = (slot, seal)
        self.residency.adopt(
            [(slot, key) for key, (slot, _) in newest.items()],
            generations=[seal.generation for _, seal in newest.values()],
        )
        dropped = stale + damaged
        self.sealed.free(dropped)
        return len(newest), len(dropped)

    def readable(self, now_s: float) -> bool:
        return not self._reading.active(now_s)

    def writable(self, now_s: float) -> bool:
        return not self._writing.active(now_s)

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

    def read_succeeded(self) -> None:
        self._reading.succeeded()

    def write_succeeded(self) -> None:
        self._writing.succeeded()

    def read_failed(self, slot: int, reason: Reason, now_s: float) -> None:
        """A leased slot held a bad block, or none that could be read: it leaves service."""
        if self.state.key_of(slot) is not None:
            self.residency.quarantine([slot])
            self._observer(Quarantined(tier=self.name, slots=1, reason=reason))
        if reason is Reason.IO_ERROR:
            self._pause_reads(reason, now_s)

    def read_late(self, hanging: Sequence[int], now_s: float) -> None:
        """Reads are late; the blocks of leased slots whose I/O hangs are not found again."""
        self.residency.retire([slot for slot in hanging if self.state.key_of(slot) is not None])
        self._pause_reads(Reason.TIMEOUT, now_s)

    def _pause_reads(self, reason: Reason, now_s: float) -> None:
        if self.readable(now_s):
            self._reading.failed(now_s)
            self._observer(Degraded(tier=self.name, reason=reason, detail="reads are paused"))

    def write_failed(self, error: TierError, reason: Reason, now_s: float) -> None:
        """Writing stops for a while; what is there can still be read."""
        if self.writable(now_s):
            self._writing.failed(now_s)
            self._observer(Degraded(tier=self.name, reason=reason, detail=error.message))

    def withdraw(self, slots: Sequence[int]) -> None:
        """Unpublish blocks whose headers are about to be erased. The slots are leased until
        then, so that no new block can be erased in their place."""
        self.state.lease(slots)
        self.residency.retire(slots)
