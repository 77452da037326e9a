"""Jobs that vLLM has given, and what is told of each when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field

from pagoda.core.outcome import Hit
from pagoda.store.restore import Restore


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A job that is over. `good` were loaded, or are stored; `held` are chunks of a load whose
    time was over and that a stuck thread may still write to."""

    number: int
    loads: bool
    good: tuple[bytes, ...]
    bad: tuple[bytes, ...]
    size_bytes: int
    seconds: float
    held: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """Chunks on their way: `restores` has one for each name of a load and none for a store,
    `waiting` counts chunks whose bytes the store still reads."""

    number: int
    names: tuple[bytes, ...]
    chunks: tuple[int, ...]
    began_s: float
    restores: list[Restore] = field(default_factory=list)
    waiting: int = 0

    @property
    def done(self) -> bool:
        """Whether what becomes of each chunk is known."""
        return not self.waiting and all(restore.done for restore in self.restores)

    @property
    def drained(self) -> bool:
        """Whether no thread touches a chunk any more."""
        return not self.waiting and all(restore.drained for restore in self.restores)

    def held(self) -> tuple[int, ...]:
        """Chunks that a thread may still write to."""
        pairs = zip(self.chunks, self.restores, strict=False)
        return tuple(chunk for chunk, restore in pairs if not restore.drained)

    def arrived(self) -> list[bool]:
        """Which chunks a load has brought; only once done."""
        return [isinstance(restore.outcomes[0], Hit) for restore in self.restores]
