"""Pages of SGLang's host memory that nobody may use: a thread stuck in a drive may still touch
them.

SGLang frees a page as soon as its prefetch is told as failed, or its backup as over, and gives it
to another request. A thread in the kernel cannot be called back, so a page is not given back to
its pool before the thread has come out: `free` of a watched pool passes over held indices, `clear`
takes them out again, and `settle` frees what was passed over once its I/O has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch


@dataclass(slots=True, eq=False)
class _Hold:
    """Indices, and whether the I/O that touches them has ended."""

    indices: frozenset[int]
    ended: Callable[[], bool]


@dataclass(slots=True, eq=False)
class _Watched:
    """A pool whose `free` and `clear` come by here. `withheld` was freed while it was held."""

    pool: Any
    free: Callable[[Any], Any]
    clear: Callable[[], Any]
    mine: tuple[Any, Any] = (None, None)
    withheld: list[int] = field(default_factory=list)


class HeldPages:
    """Any thread. Derived pools have another's indices, so an index is held in every pool."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._watched: list[_Watched] = []
        self._holds: list[_Hold] = []

    def __len__(self) -> int:
        with self._lock:
            return len(self._indices())

    def watch(self, pool: Any) -> None:
        """From now on, nothing of a pool is given to others while it is held."""
        if any(one.pool is pool for one in self._watched):
            return
        watched = _Watched(pool, pool.free, pool.clear)

        def free(indices: Any) -> Any:
            return self._free(watched, indices)

        def clear() -> None:
            self._clear(watched)

        watched.mine = (free, clear)
        pool.free, pool.clear = free, clear
        self._watched.append(watched)

    def leave(self) -> None:
        """Pools are as they were, unless someone else has come between."""
        with self._lock:
            for one in self._watched:
                for name, mine in zip(("free", "clear"), one.mine, strict=True):
                    if vars(one.pool).get(name) is mine:
                        delattr(one.pool, name)
            self._watched.clear()

    def hold(self, indices: Sequence[int], ended: Callable[[], bool]) -> None:
        """Keep indices from being used until `ended`."""
        with self._lock:
            self._holds.append(_Hold(frozenset(indices), ended))

    def settle(self) -> None:
        """Free what was freed meanwhile and is not held any more."""
        with self._lock:
            self._holds = [hold for hold in self._holds if not hold.ended()]
            held = self._indices()
            for one in self._watched:
                over = [index for index in one.withheld if index not in held]
                if over:
                    one.withheld = [index for index in one.withheld if index in held]
                    one.free(torch.tensor(over, dtype=torch.int64))

    def _indices(self) -> frozenset[int]:
        return frozenset().union(*(hold.indices for hold in self._holds))

    def _free(self, watched: _Watched, indices: Any) -> Any:
        with self._lock:
            held = self._indices()
            if not held:
                return watched.free(indices)
            stays = _among(indices, held)
            watched.withheld += [int(index) for index in indices[stays]]
            if not bool(stays.all()):
                watched.free(indices[~stays])
            return len(indices)

    def _clear(self, watched: _Watched) -> None:
        """Everything is free, but what is held: that is taken at once, and counts as freed."""
        with self._lock:
            watched.clear()
            watched.withheld.clear()
            held = self._indices()
            if held:
                everything = watched.pool.alloc(watched.pool.available_size())
                stays = _among(everything, held)
                watched.withheld += [int(index) for index in everything[stays]]
                watched.free(everything[~stays])


def _among(indices: Any, held: frozenset[int]) -> Any:
    found = np.isin(indices.cpu().numpy(), np.fromiter(held, dtype=np.int64))
    return torch.from_numpy(found)
