"""What `pagoda bench index` measures in a process of its own, so that memory can be told.

A residency of N blocks beside what one would write first: a bare dictionary from key to slot
and a list of leases. Both look the same prefixes up and lease them, one call a prefix, in runs
that alternate. Prefixes are drawn from all keys at random: no neighbour of a key is in a cache
because its neighbour was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagoda.core import native
from pagoda.core.identity import DIGEST_BYTES, Key
from pagoda.core.policy import REGISTRY
from pagoda.core.residency import Residency
from pagoda.core.state import TierState
from pagoda.lab.bench.sparse_slab import open_slab
from pagoda.lab.bench.stats import Percentiles, Spread, paired_ratio
from pagoda.machine.heap import resident_bytes, trim_heap
from pagoda.tiers.seals import SealTable

PREFIX_BLOCKS = 64
POLICY = "lru"

Lease = Callable[[list[Key]], Sequence[int]]


def measure_size(order: dict[str, Any]) -> dict[str, Any]:
    """One size: `blocks`, `lookups` (prefixes a run), `runs`, `seed`."""
    blocks, runs = order["blocks"], order["runs"]
    rng = np.random.default_rng(order["seed"])
    names = rng.bytes(blocks * DIGEST_BYTES)
    slots = rng.permutation(blocks).astype(np.int32)
    empty_bytes = _resident()
    residency = _residency(names, slots)
    table_bytes = _resident() - empty_bytes
    prefixes = [
        [_name(names, number) for number in rng.integers(0, blocks, PREFIX_BLOCKS)]
        for _ in range(order["lookups"])
    ]
    dictionary = _Dictionary(names, slots)
    sides: dict[str, tuple[Lease, Callable[[Sequence[int]], object]]] = {
        "table": (residency.lease_prefix, residency.state.release),
        "dict": (dictionary.lease_prefix, dictionary.release),
    }
    per_s: dict[str, list[float]] = {name: [] for name in sides}
    latencies: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(runs + 1):  # the first is not counted
        for name, (lease, release) in sides.items():
            took = [_timed(lease, release, prefix) for prefix in prefixes]
            if run:
                per_s[name].append(len(took) / sum(took))
                latencies[name] += took
    residency.check_invariants()
    return {
        "blocks": blocks,
        "compiled": native.TABLES is not None,
        "table_bytes_a_block": table_bytes / blocks,
        "seal_bytes_a_block": SealTable(blocks).size_bytes / blocks,
        "dict_bytes_a_block": dictionary.size_bytes / blocks,
        "per_s": {name: asdict(Spread.of(values)) for name, values in per_s.items()},
        "latency_s": {name: _shape(values) for name, values in latencies.items()},
        "table_to_dict": asdict(paired_ratio(per_s["table"], per_s["dict"])),
    }


def measure_restart(order: dict[str, Any]) -> dict[str, Any]:
    """Open the drive in `directory`, made with `blocks` sound headers, as an engine does."""
    before = resident_bytes()
    began = time.perf_counter()
    store = open_slab(Path(order["directory"]))
    seconds = time.perf_counter() - began
    found = sum(store.counts().values())
    grown = resident_bytes() - before
    store.close(flush_s=1.0)
    return {"seconds": seconds, "blocks": found, "bytes_a_block": grown / max(1, found)}


def _residency(names: bytes, slots: NDArray[np.int32]) -> Residency:
    residency = Residency(TierState("bench", len(slots)), REGISTRY[POLICY](len(slots)))
    generations = np.zeros(len(slots), dtype=np.uint64)
    residency.adopt(slots, names, bytes(len(names)), generations=generations, floor=1)
    return residency


class _Dictionary:
    """The bare dictionary: no generations, no policy, no life of a slot."""

    def __init__(self, names: bytes, slots: NDArray[np.int32]) -> None:
        self._slots: dict[bytes, int] = {}
        self._leases = [0] * len(slots)
        before = _resident()
        for number, slot in enumerate(slots.tolist()):
            self._slots[_name(names, number)] = slot
        self.size_bytes = _resident() - before

    def lease_prefix(self, keys: Sequence[Key]) -> list[int]:
        found: list[int] = []
        for key in keys:
            slot = self._slots.get(key)
            if slot is None:
                break
            self._leases[slot] += 1
            found.append(slot)
        return found

    def release(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._leases[slot] -= 1


def _timed(lease: Lease, release: Callable[[Sequence[int]], object], prefix: list[Key]) -> float:
    began = time.perf_counter()
    held = lease(prefix)
    took = time.perf_counter() - began
    assert len(held) == len(prefix), "every key of the bench is known"
    release(held)
    return took


def _resident() -> int:
    trim_heap()
    return resident_bytes()


def _name(names: bytes, number: int) -> Key:
    return Key(names[int(number) * DIGEST_BYTES : (int(number) + 1) * DIGEST_BYTES])


def _shape(values: list[float]) -> dict[str, float] | None:
    shape = Percentiles.of(values)
    return asdict(shape) if shape else None
