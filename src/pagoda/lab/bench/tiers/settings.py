"""What `pagoda bench tiers` moves, how often, and where."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KIB = 1 << 10
MIB = 1 << 20
PAIRS = 9  # fewer are reported, and judge nothing
DEPTH = 4  # reads and writes at a time: what drive.io_threads is by default

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in it

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """Sizes in bytes. `directory` lies on the drive to measure; None takes the temporary one.

    `memory_directory` lies on a tmpfs. `lmcache` is a directory that `pip install --target`
    filled; None finds LMCache where Python finds packages.
    """

    directory: Path | None = None
    memory_directory: Path = SHARED_MEMORY
    lmcache: Path | None = None
    size_bytes: int = 256 * MIB
    block_sizes: tuple[int, ...] = (4 * MIB, 16 * MIB)
    depths: tuple[int, ...] = (1, DEPTH)
    pairs: int = PAIRS
    seed: int = 0

    @property
    def drive(self) -> Path:
        """Where files of the drive to measure are made."""
        return self.directory or Path(tempfile.gettempdir())

    @property
    def judged(self) -> bool:
        """Whether there are pairs enough for a verdict."""
        return self.pairs >= PAIRS
