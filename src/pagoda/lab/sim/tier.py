"""A breakable tier whose operations other things may happen in the middle of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pagoda.core.errors import TierFault
from pagoda.lab.sim.drive import SLOT_BYTES, Drive, Label, label_of
from pagoda.lab.sim.failure import Check, ensure
from pagoda.lab.sim.world import BLOCK_BYTES
from pagoda.seal.header import EMPTY
from pagoda.testing.faults import FaultyTier
from pagoda.testing.memory import MemoryTier


@dataclass(frozen=True, slots=True)
class Flight:
    """An operation that has begun and not ended."""

    tier: SimTier
    operation: str
    slots: frozenset[int]
    views: Sequence[memoryview]

    def collides(self, operation: str, slots: Sequence[int]) -> bool:
        """Whether another operation on the same tier must not happen now. A header may be
        erased while its payload is being read; nothing else goes with a write."""
        both = {self.operation, operation}
        harmless = both in ({"read"}, {"read", "erase"}, {"erase"})
        return not harmless and not self.slots.isdisjoint(slots)


class Host(Protocol):
    """The node that a tier is part of."""

    flights: list[Flight]

    def due(self) -> bool:
        """Whether the operation that begins now is interrupted."""
        ...

    def strike(self) -> None:
        """Do something else. May raise Killed."""
        ...

    def committed(self, tier: SimTier, labels: Sequence[Label]) -> None:
        """Headers are about to be written."""
        ...


class SimTier(FaultyTier):
    """A memory tier of one node, over a drive, or over one that ends with the process."""

    def __init__(self, drive: Drive, host: Host) -> None:
        super().__init__(MemoryTier(drive.name, drive.medium, slot_bytes=SLOT_BYTES))
        self.drive = drive
        self.medium = drive.medium
        self._host = host
        self._spoilt: set[int] = set()  # slots whose next header will speak for other bytes
        found = drive.labels()
        self._generations = {label.slot: label.generation for label in found}
        self._floor = max(self._generations.values(), default=-1)

    def flip_at_rest(self, slot: int, *, size_bytes: int, at: int) -> None:
        self.drive.suspect([slot])
        self._spoilt.add(slot)  # its header may be still to come
        super().flip_at_rest(slot, size_bytes=size_bytes, at=at)

    def reserve(self, slots: Sequence[int]) -> None:
        self._check("erase", slots)
        super().reserve(slots)

    def free(self, slots: Sequence[int]) -> None:
        self._check("erase", slots)
        if self._host.due():
            self._host.strike()
        super().free(slots)

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        self._check("write", slots)
        self._check_erased(slots)
        self.drive.wrote(sum(len(payload) == BLOCK_BYTES for payload in payloads))
        self._spoilt.difference_update(slots)
        self._spoil(slots)
        if not self._host.due():
            super().write(slots, payloads)
            return
        half = len(slots) // 2
        flight = Flight(self, "write", frozenset(slots), payloads)
        super().write(slots[:half], payloads[:half])
        if len(slots) > half:  # part of a payload has arrived
            super().write(slots[half : half + 1], [payloads[half][: len(payloads[half]) // 3]])
        self._interrupt(flight)
        self._spoil(slots[half:])
        super().write(slots[half:], payloads[half:])

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        self._check("commit", slots)
        labels = [label_of(slot, header) for slot, header in zip(slots, headers, strict=True)]
        self._check_generations(labels)
        if not self._host.due():
            self._put(labels, headers)
        else:
            half = len(slots) // 2
            self._interrupt(Flight(self, "commit", frozenset(slots), ()))
            self._put(labels[:half], headers[:half])
            self._interrupt(Flight(self, "commit", frozenset(slots), ()))
            self._put(labels[half:], headers[half:])
        self._host.committed(self, labels)

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        self._check("read", slots)
        self.drive.suspect(self.faults.flip_on_read.intersection(slots))
        if not self._host.due():
            return super().read(slots, into)
        half = len(slots) // 2
        counts = super().read(slots[:half], into[:half])
        self._interrupt(Flight(self, "read", frozenset(slots), into))
        self.drive.suspect(self.faults.flip_on_read.intersection(slots))
        return counts + super().read(slots[half:], into[half:])

    def scan(self) -> Iterator[tuple[int, bytes]]:
        if not self.drive.comes_up:
            raise TierFault("the drive does not come up", tier=self.name, errno=5)
        return super().scan()

    def _put(self, labels: Sequence[Label], headers: Sequence[bytes]) -> None:
        """Write headers, and keep account of them at once: the process may end, or the next
        ones fail, before the commit is done."""
        super().commit([label.slot for label in labels], headers)
        self._mark_suspects(labels)

    def _interrupt(self, flight: Flight) -> None:
        self._host.flights.append(flight)
        try:
            self._host.strike()
        finally:
            self._host.flights.pop()

    def _check(self, operation: str, slots: Sequence[int]) -> None:
        for flight in self._host.flights:
            if flight.tier is self:
                ensure(
                    not flight.collides(operation, slots),
                    Check.EXCLUSIVE,
                    f"{self.name}: {operation} of {list(slots)} while a {flight.operation} "
                    f"of {sorted(flight.slots)} is under way",
                )

    def _mark_suspects(self, labels: Sequence[Label]) -> None:
        """Blocks whose payloads a fault kept from arriving whole, or that another's hit."""
        for label in labels:
            self.drive.keys[label.slot] = label.key
            if label.slot in self._spoilt:
                self.drive.damaged.add(label.slot)
            else:
                self.drive.damaged.discard(label.slot)
        self._spoilt.difference_update(label.slot for label in labels)

    def _spoil(self, slots: Sequence[int]) -> None:
        """What the faults do to this write."""
        faults = self.faults
        if not (faults.lose_write or faults.torn_write or faults.misdirect_write):
            return
        for slot in slots:
            if slot in faults.lose_write or slot in faults.torn_write:
                self._spoilt.add(slot)
            elif (target := faults.misdirect_write.get(slot, slot)) != slot:
                self._spoilt.update((slot, target))
                self.drive.suspect([target])

    def _check_erased(self, slots: Sequence[int]) -> None:
        for slot in slots:
            ensure(
                self.medium.headers[slot] == EMPTY,
                Check.ORDER,
                f"{self.name}: slot {slot} is overwritten while its header still stands",
            )

    def _check_generations(self, labels: Sequence[Label]) -> None:
        """Each reuse of a slot has a higher generation than whatever was in it before."""
        for label in labels:
            before = self._generations.get(label.slot, self._floor)
            ensure(
                label.generation > before,
                Check.GENERATION,
                f"{self.name}: slot {label.slot} is reused with generation {label.generation} "
                f"after {before}",
            )
            self._generations[label.slot] = label.generation
