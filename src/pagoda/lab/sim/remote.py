"""The store that all nodes of a run share, and how it lies."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from pagoda.core.errors import TierFault, TierFull, TierTimeout
from pagoda.core.identity import Key
from pagoda.lab.sim.world import BLOCK_BYTES
from pagoda.store.shared_link import SharedConfig
from pagoda.store.store import SharedParts
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared
from pagoda.tiers.remote.breaker import GuardedShared
from pagoda.tiers.remote.port import SharedTier
from pagoda.tiers.remote.sealed import SealedShared

_CONFIG = SharedConfig(
    block_bytes=BLOCK_BYTES, run_bytes=4 * BLOCK_BYTES, queue_bytes=24 * BLOCK_BYTES
)


class Host(Protocol):
    """The node whose I/O thread calls."""

    def due(self) -> bool:
        """Whether the call that begins now is interrupted."""
        ...

    def strike(self) -> None:
        """Do something else. May raise Killed."""
        ...

    def stored_shared(self, keys: Sequence[Key]) -> None:
        """Values were written."""
        ...


class Remote:
    """A shared store in memory. `suspects` are keys of blocks that it has lied about."""

    def __init__(self, rng: random.Random) -> None:
        self._held = MemoryShared()
        self._faulty = FaultyShared(self._held)
        self._rng = rng
        self.suspects: set[Key] = set()

    def parts(self, host: Host, clock: Callable[[], float]) -> SharedParts:
        """What a node's store is made with."""
        guard = GuardedShared(Interrupted(self._faulty, host), clock=clock, rng=self._rng)
        return SharedParts(sealed=SealedShared(guard), guard=guard, config=_CONFIG)

    def heal(self) -> None:
        """It tells the truth again."""
        self._faulty.faults.clear()

    def lie(self) -> None:
        """About some of what it holds, or about all of it."""
        rng, faults = self._rng, self._faulty.faults
        held = list(self._held.values)
        names = [rng.choice(held) for _ in range(16)] if held else []
        match rng.randrange(9):
            case 0:
                faults.swap.update(zip(names, reversed(names), strict=True))
            case 1:
                faults.old.update(names)
            case 2:
                faults.flip.update((name, rng.randrange(1 << 16)) for name in names)
            case 3:
                faults.cut.update((name, rng.randrange(BLOCK_BYTES + 256)) for name in names)
            case 4:
                faults.claim.update(names)
                self._held.drop(names)
            case 5:
                faults.deny.update(names)
            case 6:
                faults.lose.update(names)
                faults.keep.update(names)
            case 7:
                faults.read_error = rng.choice(_ERRORS)
            case _:
                faults.write_error = rng.choice(_ERRORS)
        self.suspects.update(map(_key_of, names))


_ERRORS = (
    TierFault("connection refused", tier="remote"),
    TierTimeout("no answer", tier="remote", deadline_s=1.0),
    TierFull("out of memory", tier="remote"),
)


def _key_of(name: str) -> Key:
    return Key(bytes.fromhex(name.rpartition("/")[2]))


class Interrupted:
    """A SharedTier in the middle of whose calls other things may happen."""

    def __init__(self, inner: SharedTier, host: Host) -> None:
        self.name = inner.name
        self._inner = inner
        self._host = host

    def put(self, names: Sequence[str], values: Sequence[Sequence[memoryview]]) -> None:
        self._pause()
        half = len(names) // 2
        self._inner.put(names[:half], values[:half])
        self._pause()
        self._inner.put(names[half:], values[half:])
        self._host.stored_shared([_key_of(name) for name in names])

    def get(self, names: Sequence[str], limit_bytes: int) -> list[memoryview | None]:
        self._pause()
        found = self._inner.get(names, limit_bytes)
        self._pause()
        return found

    def has(self, names: Sequence[str]) -> list[bool]:
        self._pause()
        return self._inner.has(names)

    def drop(self, names: Sequence[str]) -> None:
        self._pause()
        self._inner.drop(names)

    def names(self, prefix: str) -> Iterator[str]:
        self._pause()
        return self._inner.names(prefix)

    def close(self) -> None:
        self._inner.close()

    def _pause(self) -> None:
        if self._host.due():
            self._host.strike()
