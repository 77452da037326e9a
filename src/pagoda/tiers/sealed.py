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
from pagoda.seal.digest import Digesting, digest
from pagoda.seal.header import Seal, pack
from pagoda.tiers.port import Streaming, Tier, streaming
from pagoda.tiers.scanning import Found, scan_tier
from pagoda.tiers.seals import SealTable


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
        self._streaming = streaming(tier)
        self.seals = SealTable(tier.geometry.slots)

    def scan(self) -> Found:
        """Read all headers and remember the sound ones. Raises TierError."""
        with self._typed():
            return scan_tier(self.tier, self.seals)

    def store(
        self, slots: Sequence[int], seals: Sequence[Seal], payloads: Sequence[memoryview]
    ) -> None:
        """Write payloads and seal them; raises TierError, and then nothing is committed."""
        self.seals.forget(slots)
        with self._typed():
            self.tier.reserve(slots)
            digests = self._write(slots, payloads)
            sealed = [
                replace(seal, payload_digest=found)
                for seal, found in zip(seals, digests, strict=True)
            ]
            self.tier.commit(slots, self._headers(slots, sealed))
        for slot, seal in zip(slots, sealed, strict=True):
            self.seals.put(slot, seal)

    def load(self, orders: Sequence[Order], into: Sequence[memoryview]) -> list[Outcome]:
        """Read blocks into caller-owned buffers; every buffer holds a verified payload, or zeros.

        A failing read of several blocks is tried again one by one, so that one bad sector
        costs one block. Raises nothing of a tier.
        """
        sizes = [self._expected_bytes(order) for order in orders]
        wanted = [i for i, size in enumerate(sizes) if size is not None]
        views = {i: into[i][: sizes[i]] for i in wanted}
        arrived = self._read(orders, wanted, views)
        outcomes: list[Outcome] = []
        for i, order in enumerate(orders):
            outcome = self._judge(order, views.get(i), arrived.get(i))
            if not isinstance(outcome, Hit):
                into[i][:] = bytes(len(into[i]))
            outcomes.append(outcome)
        return outcomes

    def free(self, slots: Sequence[int]) -> None:
        """Forget slots and erase their headers; raises TierError."""
        self.seals.forget(slots)
        with self._typed():
            self.tier.free(slots)

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
        return self.seals.length(order.slot, generation=order.generation, key=order.key)

    def _write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> list[bytes]:
        """Write payloads; the digest of each, taken of the caller's bytes and not of the
        tier's, so that a bad copy is not sealed as a good one."""
        if self._streaming is None:
            digests = [digest(payload) for payload in payloads]
            self.tier.write(slots, payloads)
            return digests
        return [
            _written_through(self._streaming, slot, payload)
            for slot, payload in zip(slots, payloads, strict=True)
        ]

    def _read(
        self, orders: Sequence[Order], wanted: list[int], views: dict[int, memoryview]
    ) -> dict[int, _Arrived | Unavailable]:
        """What arrived for each wanted order, or why it could not be read."""
        try:
            with self._typed():
                slots, buffers = [orders[i].slot for i in wanted], [views[i] for i in wanted]
                return dict(zip(wanted, self._arrive(slots, buffers), strict=True))
        except TierError as error:
            if len(wanted) == 1:
                return {wanted[0]: Unavailable(self.name, reason_of(error))}
            merged: dict[int, _Arrived | Unavailable] = {}
            for i in wanted:
                merged |= self._read(orders, [i], views)
            return merged

    def _arrive(self, slots: Sequence[int], buffers: Sequence[memoryview]) -> list[_Arrived]:
        if self._streaming is None:
            return [_Arrived(count) for count in self.tier.read(slots, buffers)]
        return [
            _read_through(self._streaming, slot, buffer)
            for slot, buffer in zip(slots, buffers, strict=True)
        ]

    def _judge(
        self, order: Order, view: memoryview | None, arrived: _Arrived | Unavailable | None
    ) -> Outcome:
        if view is None or arrived is None:
            return Miss(Reason.STALE)
        if isinstance(arrived, Unavailable):
            return arrived
        expected = self._expected_bytes(order)
        if expected is None:  # the slot was given away while it was read
            return Corrupt(self.name, Reason.MISPLACED)
        if arrived.count < expected:
            return Corrupt(self.name, Reason.TRUNCATED)
        if (arrived.digest or digest(view)) != self.seals.digest(order.slot):
            return Corrupt(self.name, Reason.CORRUPT)
        return Hit(self.name)


@dataclass(frozen=True, slots=True)
class _Arrived:
    """Bytes that a tier delivered, and their digest if it was taken on the way."""

    count: int
    digest: bytes | None = None


def _written_through(tier: Streaming, slot: int, payload: memoryview) -> bytes:
    digesting = Digesting()
    tier.write_through(slot, payload, digesting.see)
    return digesting.digest()


def _read_through(tier: Streaming, slot: int, into: memoryview) -> _Arrived:
    digesting = Digesting()
    count = tier.read_through(slot, into, digesting.see)
    return _Arrived(count, digesting.digest())
