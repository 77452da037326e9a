"""Power cuts: slab files as a cut could leave them, made from a recorded log.

What was synced is there. Of what was not, a cut leaves any part, in any order: of every page
or sector that was written since the last sync, any one of its contents since, and a sector
may be torn at a byte. A rename may be lost until its directory is synced.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pagoda.lab.crash.check import Findings, examine
from pagoda.lab.crash.ledger import Event, Ledger
from pagoda.lab.crash.tap import Op
from pagoda.lab.progress import Step, Tell
from pagoda.tiers.drive.slab import SLAB_NAME

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (a directory of its own is made in it)
PAGE_BYTES = 4096
SECTOR_BYTES = 512
_TORN_SHARE = 0.1  # of sectors in a scrambled image
_PIECE_BYTES = 64 << 10


class Kind(StrEnum):
    """What a power cut does to the writes that no sync had followed."""

    WRITTEN = "all written"
    TORN = "last write torn"
    LOST = "unsynced lost"
    PAGES = "pages mixed"
    SECTORS = "sectors mixed"  # and some of them torn


@dataclass(frozen=True, slots=True)
class Image:
    """What a cut left: which kind it was, and the file's bytes."""

    kind: Kind
    data: bytes


class Medium:
    """A file on a drive with a volatile cache: what is durable, and the writes that are not."""

    def __init__(self, size_bytes: int) -> None:
        self._durable = bytearray(size_bytes)
        self._pending: list[Op] = []

    def do(self, op: Op) -> None:
        """Carry out the next operation of a log."""
        if op.syncs:
            self._durable = self._written(self._pending)
            self._pending = []
        else:
            self._pending.append(op)

    def images(self, rng: random.Random, *, scrambled: int) -> Iterator[Image]:
        """What a cut now may leave: all that was written, the last write torn at a byte, only
        what was synced, and `scrambled` random parts in pages and as many in sectors."""
        yield Image(Kind.WRITTEN, bytes(self._written(self._pending)))
        if not self._pending:
            return  # there is nothing to lose
        *before, last = self._pending
        torn = Op(last.path, last.offset, last.data[: rng.randrange(len(last.data))])
        yield Image(Kind.TORN, bytes(self._written([*before, torn])))
        yield Image(Kind.LOST, bytes(self._durable))
        for _ in range(scrambled):
            yield Image(Kind.PAGES, self._scrambled(PAGE_BYTES, rng))
            yield Image(Kind.SECTORS, self._scrambled(SECTOR_BYTES, rng))

    def _written(self, ops: Sequence[Op]) -> bytearray:
        data = bytearray(self._durable)
        for op in ops:
            data[op.offset : op.offset + len(op.data)] = op.data
        return data

    def _scrambled(self, unit: int, rng: random.Random) -> bytes:
        data = bytearray(self._durable)
        for place, contents in self._contents(unit).items():
            chosen = rng.choice(contents)
            if unit == SECTOR_BYTES and rng.random() < _TORN_SHARE:
                tear = rng.randrange(unit)
                chosen = chosen[:tear] + rng.choice(contents)[tear:]
            data[place : place + unit] = chosen
        return bytes(data)

    def _contents(self, unit: int) -> dict[int, list[bytes]]:
        """All that each unit has held since the last sync, by its offset; first what is durable."""
        found: dict[int, list[bytes]] = {}
        data = bytearray(self._durable)
        for op in self._pending:
            end = op.offset + len(op.data)
            first = op.offset // unit * unit
            for place in range(first, end, unit):
                found.setdefault(place, [bytes(data[place : place + unit])])
            data[op.offset : end] = op.data
            for place in range(first, end, unit):
                found[place].append(bytes(data[place : place + unit]))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A workload that ran to its end: every operation on its slab, and what it was promised."""

    log: Sequence[Op]
    events: Sequence[Event]
    size_bytes: int  # of the slab


def cut_power(
    recording: Recording, *, rng: random.Random, scrambled: int, tell: Tell
) -> dict[Kind, Findings]:
    """Cut the power after every operation and restart over each image; findings by kind."""
    findings = {kind: Findings() for kind in Kind}
    medium = Medium(recording.size_bytes)
    synced = -1
    with tempfile.TemporaryDirectory(prefix="pagoda-crash-", dir=_memory()) as directory:
        for cut, op in enumerate(recording.log, start=1):
            tell(Step("power cuts at every write and sync", cut / len(recording.log)))
            medium.do(op)
            synced = cut - 1 if op.syncs else synced
            ledgers = _ledgers(recording.events, cut, synced)
            for number, image in enumerate(medium.images(rng, scrambled=scrambled)):
                _lay_down(image, Path(directory), op.path.name)
                label = f"cut after operation {cut - 1}, image {number} ({image.kind})"
                found, ledger = findings[image.kind], ledgers[image.kind]
                examine(Path(directory), ledger, found, label=label)
    return findings


def _memory() -> Path | None:
    """A file system in memory, if there is one: an image is whole wherever it lies."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None


def _ledgers(events: Sequence[Event], cut: int, synced: int) -> dict[Kind, Ledger]:
    """What each kind of cut promises. Where all was written, it is as when a process dies."""
    unordered = Ledger(events, cut=cut, synced=synced)
    return dict.fromkeys(Kind, unordered) | {
        Kind.WRITTEN: Ledger(events, cut=cut, synced=cut, in_order=True),
        Kind.TORN: Ledger(events, cut=cut, synced=cut - 1, in_order=True),
    }


def _lay_down(image: Image, directory: Path, name: str) -> None:
    """Make the directory hold the image as its only slab, with holes where it is zero."""
    for stale in (SLAB_NAME, f"{SLAB_NAME}.new"):
        (directory / stale).unlink(missing_ok=True)
    hole = bytes(_PIECE_BYTES)
    with (directory / name).open("wb") as file:
        for place in range(0, len(image.data), _PIECE_BYTES):
            piece = image.data[place : place + _PIECE_BYTES]
            if piece != hole:
                os.pwrite(file.fileno(), piece, place)
        file.truncate(len(image.data))
