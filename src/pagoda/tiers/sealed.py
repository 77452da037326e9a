"""The seal wrapper: nothing leaves a tier that is not what was sealed into it.

It remembers the seal of every committed slot (written by it, or found by a scan) and checks
each payload against it: right key, right generation, whole, and with the right digest. A
buffer that fails the check is zeroed. It does not defend against someone who can write to
the medium, and does not re-read headers from the medium after the scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pagoda.core.errors import TierError, TierFault, TierFull, TierReadOnly, TierTimeout
from pagoda.core.events import Reason
from pagoda.core.identity import Key
from pagoda.core.outcome import Corrupt, Hit, Miss, Outcome, Unavailable
from pagoda.seal.digest import digest
from pagoda.seal.header import Seal, pack, unpack
from pagoda.tiers.port import Tier


@dataclass(frozen=True, slots=True)
class Order:
    """One block to read: the slot, and the generation and key it must hold."""

    slot: int
    generation: int
    key: Key


def reason_of(error: TierError) -> Reason:
    """The word in events and metrics for a tier's error."""
    match error:
        case TierFull():
            return Reason.FULL
        case TierReadOnly():
            return Reason.READ_ONLY
        case TierTimeout():
            return Reason.TIMEOUT
        case _:
            return Reason.IO_ERROR


class SealedTier:
    """Sealed writes and verified reads over a Tier. Called from I/O threads."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.name = tier.name
        self.geometry = tier.geometry
        self._seals: dict[int, Seal] = {}

    def scan(self) -> tuple[list[tuple[int, Seal]], list[int]]:
        """Read all headers: (slot, seal) of the sound ones, and slots of the damaged ones."""
        sound: list[tuple[int, Seal]] = []
        damaged: list[int] = []
        for slot, header in self.tier.scan():
            seal = unpack(header, slot=slot, slab_id=self.tier.identity)
            if isinstance(seal, Seal) and seal.stored_bytes <= self.geometry.slot_bytes:
                sound.append((slot, seal))
                self._seals[slot] = seal
            elif seal is not None:
                damaged.append(slot)
        return sound, damaged

    def store(
        self, slots: Sequence[int], seals: Sequence[Seal], payloads: Sequence[memoryview]
    ) -> None:
        """Write payloads and seal them; raises TierError, and then nothing is committed."""
        for slot in slots:
            self._seals.pop(slot, None)
        sealed = [
            replace(seal, payload_digest=digest(payload))
            for seal, payload in zip(seals, payloads, strict=True)
        ]
        with self._typed():
            self.tier.reserve(slots)
            self.tier.write(slots, payloads)
            self.tier.commit(slots, self._headers(slots, sealed))
        self._seals.update(zip(slots, sealed, strict=True))

    def load(self, orders: Sequence[Order], into: Sequence[memoryview]) -> list[Outcome]:
        """Read blocks into caller-owned buffers; every buffer holds a verified payload, or zeros.

        A failing read of several blocks is tried again one by one, so that one bad sector
        costs one block. Raises nothing of a tier.
        """
        sizes = [self._expected_bytes(order) for order in orders]
        wanted = [i for i, size in enumerate(sizes) if size is not None]
        views = {i: into[i][: sizes[i]] for i in wanted}
        counts = self._read(orders, wanted, views)
        outcomes: list[Outcome] = []
        for i, order in enumerate(orders):
            outcome = self._judge(order, views.get(i), counts.get(i))
            if not isinstance(outcome, Hit):
                into[i][:] = bytes(len(into[i]))
            outcomes.append(outcome)
        return outcomes

    def free(self, slots: Sequence[int]) -> None:
        """Forget slots and erase their headers; raises TierError."""
        for slot in slots:
            self._seals.pop(slot, None)
        with self._typed():
            self.tier.free(slots)

    def seal_of(self, slot: int) -> Seal | None:
        """The seal that a slot was committed with."""
        return self._seals.get(slot)

    def close(self) -> None:
        with self._typed():
            self.tier.close()

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """A tier that breaks its contract is a broken tier, not a broken engine."""
        try:
            yield
        except TierError:
            raise
        except Exception as error:
            message = f"the tier raised {type(error).__name__}: {error}"
            raise TierFault(message, tier=self.name) from error

    def _headers(self, slots: Sequence[int], seals: Sequence[Seal]) -> list[bytes]:
        identity = self.tier.identity
        return [
            pack(seal, slot=slot, slab_id=identity) for slot, seal in zip(slots, seals, strict=True)
        ]

    def _expected_bytes(self, order: Order) -> int | None:
        """Payload size by the slot's seal; None when the slot no longer holds what is asked for."""
        seal = self._seals.get(order.slot)
        if seal is None or seal.generation != order.generation or seal.key != order.key:
            return None
        return seal.stored_bytes

    def _read(
        self, orders: Sequence[Order], wanted: list[int], views: dict[int, memoryview]
    ) -> dict[int, int | Unavailable]:
        """Bytes read for each wanted order, or why it could not be read."""
        try:
            with self._typed():
                slots, buffers = [orders[i].slot for i in wanted], [views[i] for i in wanted]
                return dict(zip(wanted, self.tier.read(slots, buffers), strict=True))
        except TierError as error:
            if len(wanted) == 1:
                return {wanted[0]: Unavailable(self.name, reason_of(error))}
            merged: dict[int, int | Unavailable] = {}
            for i in wanted:
                merged |= self._read(orders, [i], views)
            return merged

    def _judge(
        self, order: Order, view: memoryview | None, count: int | Unavailable | None
    ) -> Outcome:
        seal = self._seals.get(order.slot)
        if view is None or count is None or seal is None:
            return Miss(Reason.STALE)
        if isinstance(count, Unavailable):
            return count
        if seal.key != order.key or seal.generation != order.generation:
            return Corrupt(self.name, Reason.MISPLACED)
        if count < seal.stored_bytes:
            return Corrupt(self.name, Reason.TRUNCATED)
        if digest(view) != seal.payload_digest:
            return Corrupt(self.name, Reason.CORRUPT)
        return Hit(self.name)
