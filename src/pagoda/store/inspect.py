"""Looking into a drive directory from outside, beside a running engine or without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pagoda.core.errors import FormatError
from pagoda.seal.digest import digest
from pagoda.seal.header import HEADER_BYTES, Seal, unpack
from pagoda.tiers.drive import slab
from pagoda.tiers.drive.file import TIER
from pagoda.tiers.drive.oserrors import typed_errors

Progress = Callable[[int, int], None]  # blocks done, blocks in all


@dataclass(frozen=True, slots=True)
class Entry:
    """A committed block: where its payload lies in the file, and its seal."""

    slot: int
    offset: int
    seal: Seal


@dataclass(slots=True)
class NamespaceReport:
    """What a drive holds of one namespace. Times in ms since the epoch; `key_ids` are those of
    the keys that its encrypted blocks need."""

    namespace: str
    blocks: int = 0
    encrypted: int = 0  # of the blocks
    key_ids: list[int] = field(default_factory=list)
    size_bytes: int = 0
    tokens: int = 0
    longest_chain: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0

    def add(self, seal: Seal) -> None:
        """Count a block."""
        self.blocks += 1
        self.size_bytes += seal.stored_bytes
        self.tokens += seal.tokens
        self.longest_chain = max(self.longest_chain, seal.depth + 1)
        self.oldest_ms = min(self.oldest_ms or seal.created_ms, seal.created_ms)
        self.newest_ms = max(self.newest_ms, seal.created_ms)
        if seal.encryption is not None:
            self.encrypted += 1
            if seal.encryption.key_id not in self.key_ids:
                self.key_ids.append(seal.encryption.key_id)


@dataclass(slots=True)
class DriveReport:
    """What is in a drive directory. `corrupt` lists slots whose payload, as it is stored, breaks
    its seal; it and `verified` stay empty unless everything was read."""

    path: str
    slots: int
    slot_bytes: int
    damaged_headers: list[int] = field(default_factory=list)
    namespaces: dict[str, NamespaceReport] = field(default_factory=dict)
    verified: int = 0
    corrupt: list[int] = field(default_factory=list)

    @property
    def blocks(self) -> int:
        return sum(report.blocks for report in self.namespaces.values())


def drives_in(path: Path) -> list[Path]:
    """The drive directories that a path stands for: itself, or if it holds no slab, those right
    below it. Raises TierError when it cannot be read."""
    with typed_errors(TIER, str(path)):
        if not path.is_dir() or os.path.lexists(path / slab.SLAB_NAME):
            return [path]
        below = [child for child in sorted(path.iterdir()) if (child / slab.SLAB_NAME).is_file()]
    return below or [path]


class DriveInspector:
    """Reads a slab without its lock and without writing. Raises TierError for what is no slab.

    It needs no key: seals are checked over the bytes as they are stored, encrypted or not.

    Beside a running engine a block may be overwritten while it is being verified; it then
    counts as corrupt only if its header has not changed meanwhile.
    """

    def __init__(self, directory: Path) -> None:
        with typed_errors(TIER, str(directory)):
            self.path = directory / slab.SLAB_NAME if directory.is_dir() else directory
            found = self.path.is_file()
        if not found:
            raise FormatError(
                f"{directory} holds no {slab.SLAB_NAME}",
                tier=TIER,
                path=str(directory),
                remedy="name a drive directory (drive.path of the server's settings), or one that "
                "holds some; a server makes it when it starts first",
            )
        self.layout = slab.read_layout(self.path)

    def entries(self) -> tuple[list[Entry], list[int]]:
        """Committed blocks in order of slot, and slots whose header is damaged."""
        found: list[Entry] = []
        damaged: list[int] = []
        with self._open() as fd:
            for slot, header in slab.headers(partial(os.pread, fd), self.layout, path=self.path):
                seal = unpack(header, slot=slot, slab_id=self.layout.slab_id)
                if isinstance(seal, Seal):
                    found.append(Entry(slot, self.layout.payload_at(slot), seal))
                elif seal is not None:
                    damaged.append(slot)
        return found, damaged

    def report(self, *, verify: bool, progress: Progress) -> DriveReport:
        """Sum up what is there; with `verify`, read every payload against its seal."""
        entries, damaged = self.entries()
        report = DriveReport(
            path=str(self.path),
            slots=self.layout.slots,
            slot_bytes=self.layout.slot_bytes,
            damaged_headers=damaged,
        )
        for entry in entries:
            name = entry.seal.namespace.hex()
            report.namespaces.setdefault(name, NamespaceReport(name)).add(entry.seal)
        if verify:
            for slot in self._corrupt(entries, progress):
                report.corrupt.append(slot)
            report.verified = len(entries)
        return report

    def _corrupt(self, entries: list[Entry], progress: Progress) -> Iterator[int]:
        with self._open() as fd:
            for number, entry in enumerate(entries, start=1):
                with typed_errors(TIER, str(self.path)):
                    payload = os.pread(fd, entry.seal.stored_bytes, entry.offset)
                if digest(payload) != entry.seal.payload_digest and self._unchanged(fd, entry):
                    yield entry.slot
                progress(number, len(entries))

    def _unchanged(self, fd: int, entry: Entry) -> bool:
        with typed_errors(TIER, str(self.path)):
            header = os.pread(fd, HEADER_BYTES, self.layout.header_at(entry.slot))
        return unpack(header, slot=entry.slot, slab_id=self.layout.slab_id) == entry.seal

    @contextmanager
    def _open(self) -> Iterator[int]:
        with typed_errors(TIER, str(self.path)):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)
