"""The seal wrapper: nothing leaves a tier that is not what was sealed into it.

It remembers the seal of every committed slot (written by it, or found by a scan) and checks
each payload against it: right key, right generation, whole, and with the right digest. A
buffer that fails the check is zeroed. It does not defend against someone who can write to
the medium, and does not re-read headers from the medium after the scan.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagoda.core.errors import TierError, TierFull, TierReadOnly, TierTimeout
from pagoda.core.events import Reason
from pagoda.core.identity import Key
from pagoda.core.outcome import Corrupt, Hit, Miss, Outcome, Unavailable
from pagoda.machine.buffers import aligned_buffer
from pagoda.seal.digest import Digesting, digest, digests
from pagoda.seal.envelope import PLAIN, Envelope
from pagoda.seal.header import Seal, pack
from pagoda.tiers.port import Streaming, Tier, held_to_its_errors, streaming
from pagoda.tiers.scanning import Found, scan_tier
from pagoda.tiers.seals import SealTable

# Shorter payloads stay in the processor's cache between their copy and their digest anyway.
_SHORT_BYTES = 256 << 10

# Bytes delivered and their digest, if it was taken on the way; or why there are none.
Arrived = tuple[int, bytes | None] | Unavailable


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
    """Sealed writes and verified reads over a Tier. Called from I/O threads.

    `envelope` says how payloads are stored: as they are, coded or encrypted.
    """

    def __init__(self, tier: Tier, envelope: Envelope = PLAIN) -> None:
        self.tier = tier
        self.name = tier.name
        self.geometry = tier.geometry
        self.envelope = envelope
        self.seals = SealTable(tier.geometry.slots)
        self._streaming = streaming(tier)
        self._hit = Hit(tier.name)

    def scan(self) -> Found:
        """Read all headers and remember the sound ones. Raises TierError."""
        with held_to_its_errors(self.name):
            return scan_tier(self.tier, self.seals, self.envelope)

    def store(
        self, slots: Sequence[int], seals: Sequence[Seal], payloads: Sequence[memoryview]
    ) -> None:
        """Write payloads and seal them. Raises TierError, and then none of them is found until
        the medium is scanned again: a commit that broke off may have left sound headers."""
        self.seals.forget(slots)
        identity = self.tier.identity
        with held_to_its_errors(self.name):
            self.tier.reserve(slots)
            sealed = self._write(slots, seals, payloads)
            headers = [
                pack(seal, slot=slot, slab_id=identity)
                for slot, seal in zip(slots, sealed, strict=True)
            ]
            self.tier.commit(slots, headers)
        for slot, seal in zip(slots, sealed, strict=True):
            self.seals.put(slot, seal)

    def load(self, orders: Sequence[Order], into: Sequence[memoryview]) -> list[Outcome]:
        """Read blocks into caller-owned buffers of just their size; afterwards every buffer
        holds a verified payload, or zeros.

        A failing read of several blocks is tried again one by one, so that one bad sector
        costs one block. Raises nothing of a tier.
        """
        refused = list(map(self._refusal, orders, into))
        wanted = [i for i, refusal in enumerate(refused) if refusal is None]
        targets = [self._target(orders[i], into[i]) for i in wanted]
        arrived = iter(self._read([orders[i].slot for i in wanted], targets))
        target = iter(targets)
        outcomes: list[Outcome] = []
        for order, buffer, refusal in zip(orders, into, refused, strict=True):
            outcome = refusal or self._judge(order, next(arrived), next(target), buffer)
            if outcome is not self._hit:
                buffer[:] = bytes(len(buffer))
            outcomes.append(outcome)
        return outcomes

    def free(self, slots: Sequence[int]) -> None:
        """Forget slots and erase their headers; raises TierError."""
        self.seals.forget(slots)
        with held_to_its_errors(self.name):
            self.tier.free(slots)

    def close(self) -> None:
        with held_to_its_errors(self.name):
            self.tier.close()

    def _write(
        self, slots: Sequence[int], seals: Sequence[Seal], payloads: Sequence[memoryview]
    ) -> list[Seal]:
        """Write payloads; returns their seals, complete. Digests are taken of the caller's
        bytes and not of the tier's, so that a bad copy is not sealed as a good one."""
        through = self._through(payloads)
        if through is None or self.envelope is not PLAIN:
            wrapped = list(map(self.envelope.wrap, seals, payloads))
            self.tier.write(slots, [stored for _, stored in wrapped])
            return [seal for seal, _ in wrapped]
        digests = [write_through(through, *pair) for pair in zip(slots, payloads, strict=True)]
        return [
            replace(seal, payload_digest=found) for seal, found in zip(seals, digests, strict=True)
        ]

    def _refusal(self, order: Order, buffer: memoryview) -> Outcome | None:
        """Why a block is not even read: the slot no longer holds what is asked for, it was
        stored in a way that cannot be undone here, or the buffer is not its size."""
        stored_bytes = self._stored_bytes(order)
        if stored_bytes is None:
            return Miss(Reason.STALE)
        seal = self.seals.whole(order.slot)
        if seal is None and self.envelope.cipher is not None:
            return Miss(Reason.UNSIGNED)
        refusal = seal and self.envelope.refusal(seal)
        if refusal:
            return Miss(refusal)
        raw_bytes = seal.raw_bytes if seal else stored_bytes
        return None if len(buffer) == raw_bytes else Miss(Reason.MISPLACED)

    def _stored_bytes(self, order: Order) -> int | None:
        return self.seals.length(order.slot, generation=order.generation, key=order.key)

    def _target(self, order: Order, buffer: memoryview) -> memoryview:
        """Where the stored bytes go: the caller's buffer, unless they have to be decoded."""
        seal = self.seals.whole(order.slot)
        if seal is None or seal.stored_bytes == seal.raw_bytes:
            return buffer
        return memoryview(aligned_buffer(seal.stored_bytes))[: seal.stored_bytes]

    def _through(self, payloads: Sequence[memoryview]) -> Streaming | None:
        """The way that digests payloads as they pass, if it is worth the calls."""
        longest = max(map(len, payloads), default=0)
        return self._streaming if longest > _SHORT_BYTES else None

    def _read(self, slots: Sequence[int], targets: Sequence[memoryview]) -> list[Arrived]:
        """What arrived from each slot, or why it could not be read."""
        if not slots:
            return []
        through = self._through(targets)
        try:
            with held_to_its_errors(self.name):
                if through is None:
                    return self._seen(slots, targets, self.tier.read(slots, targets))
                return [read_through(through, *pair) for pair in zip(slots, targets, strict=True)]
        except TierError as error:
            if len(slots) == 1:
                return [Unavailable(self.name, reason_of(error))]
            pairs = zip(slots, targets, strict=True)
            return [self._read([slot], [target])[0] for slot, target in pairs]

    def _seen(
        self, slots: Sequence[int], targets: Sequence[memoryview], counts: Sequence[int]
    ) -> list[Arrived]:
        """What was read, with the digests of plain payloads that are whole, taken together."""
        rows = list(zip(slots, targets, counts, strict=True))
        plain = [
            self.seals.whole(slot) is None and count == len(into) for slot, into, count in rows
        ]
        found = iter(digests(list(itertools.compress(targets, plain))))
        return [
            (count, next(found) if one else None) for count, one in zip(counts, plain, strict=True)
        ]

    def _judge(
        self, order: Order, arrived: Arrived, target: memoryview, buffer: memoryview
    ) -> Outcome:
        if isinstance(arrived, Unavailable):
            return arrived
        count, seen = arrived
        if self._stored_bytes(order) is None:  # withdrawn while it was read: no fault of the tier
            return Miss(Reason.STALE)
        if count < len(target):
            return Corrupt(self.name, Reason.TRUNCATED)
        seal = self.seals.whole(order.slot)
        if seal is not None:
            flaw = self.envelope.unwrap(seal, target, buffer)
            return Corrupt(self.name, flaw) if flaw else self._hit
        if (seen or digest(target)) != self.seals.digest(order.slot):
            return Corrupt(self.name, Reason.CORRUPT)
        return self._hit


def write_through(tier: Streaming, slot: int, payload: memoryview) -> bytes:
    """Write one payload; its digest, taken on the way."""
    digesting = Digesting()
    tier.write_through(slot, payload, digesting.see)
    return digesting.digest()


def read_through(tier: Streaming, slot: int, into: memoryview) -> tuple[int, bytes]:
    """Read one payload; how many bytes arrived, and their digest, taken on the way."""
    digesting = Digesting()
    count = tier.read_through(slot, into, digesting.see)
    return count, digesting.digest()
