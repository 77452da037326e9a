"""Write a tier of your own and let Pagoda's conformance suite judge it.

    pytest examples/own_tier.py

The tier keeps each payload in a file of its own: seven methods, no seals, no policy. Seals,
verification and eviction come from the layers above.
"""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pagoda.testing.conformance import TierConformance
from pagoda.tiers.port import Geometry


class FileTier:
    """A Tier of one file a block."""

    name = "files"

    def __init__(self, directory: Path, *, slots: int, slot_bytes: int) -> None:
        self.geometry = Geometry(slots=slots, slot_bytes=slot_bytes)
        self.identity = secrets.token_bytes(16)
        self._directory = directory
        self._headers: dict[int, bytes] = {}

    def reserve(self, slots: Sequence[int]) -> None:
        self.free(slots)

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        for slot, payload in zip(slots, payloads, strict=True):
            self._path(slot).write_bytes(payload)

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        self._headers.update(zip(slots, headers, strict=True))

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        counts = []
        for slot, buffer in zip(slots, into, strict=True):
            with self._path(slot).open("rb") as file:
                counts.append(file.readinto(buffer))
        return counts

    def free(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._headers.pop(slot, None)

    def scan(self) -> Iterator[tuple[int, bytes]]:
        return iter(sorted(self._headers.items()))

    def close(self) -> None:
        self._headers.clear()

    def _path(self, slot: int) -> Path:
        return self._directory / f"{slot}.block"


class TestFileTier(TierConformance):
    """All of the suite, in five lines."""

    @pytest.fixture
    def tier(self, tmp_path: Path) -> FileTier:
        return FileTier(tmp_path, slots=8, slot_bytes=4096)
