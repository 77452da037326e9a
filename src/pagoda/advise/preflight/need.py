"""What the host is asked to carry: ranks, pinned memory, directories, ports, engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["DEFAULT_PORT", "Need"]

DEFAULT_PORT = 8000


@dataclass(frozen=True, slots=True)
class Need:
    """The intended use; `pinned_bytes` is host memory to pin for one rank, None when not said.

    `engines` are the environments of engines that share this host, by a name for each.
    """

    ranks: int = 1
    pinned_bytes: int | None = None
    spills: tuple[Path, ...] = ()
    spill_bytes: int = 0
    ports: tuple[int, ...] = (DEFAULT_PORT,)
    engines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def all_pinned_bytes(self) -> int | None:
        """Pinned memory of all ranks together."""
        return None if self.pinned_bytes is None else self.pinned_bytes * self.ranks
