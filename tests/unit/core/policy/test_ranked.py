"""The order of slots by rank, against a sorted list."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pagoda.core.identity import ROOT, Key
from pagoda.core.policy import REGISTRY
from pagoda.core.policy.ranked import Ranked
from pagoda.core.residency import Residency
from pagoda.core.state import TierState

_SLOTS = 12


def test_it_is_a_sorted_list() -> None:
    """Over random changes, under random leases: lowest ranks first, of equal ones the one set
    first, and asking changes nothing."""
    rng = random.Random(3)
    order, naive = Ranked[int](), dict[int, tuple[int, int]]()
    for turn in range(3000):
        slot = rng.randrange(_SLOTS)
        if slot in naive and rng.random() < 0.3:
            order.remove(slot)
            del naive[slot]
        else:
            naive[slot] = (rng.randrange(6), turn)
            order.set(slot, naive[slot][0])
        leases = np.array([rng.random() < 0.3 for _ in range(_SLOTS)], dtype=np.int32)
        expected = [slot for slot in sorted(naive, key=naive.__getitem__) if not leases[slot]]
        count = rng.randrange(_SLOTS + 2)
        assert order.lowest(count, leases) == expected[:count]
        assert order.lowest(count, None) == sorted(naive, key=naive.__getitem__)[:count]
        assert order.least() == min(naive.values(), default=(None,))[0]
        assert len(order) == len(naive)


def test_stale_entries_do_not_pile_up() -> None:
    """However often ranks change, what is kept follows what is here."""
    order = Ranked[int]()
    for turn in range(10_000):
        order.set(turn % 10, turn)
        order.lowest(1, np.full(10, turn % 2, dtype=np.int32))
    assert len(order._heap) + len(order._aside) < 200


@pytest.mark.parametrize("name", ["ema", "lru-2", "lfu", "gdsf"])
def test_cold_pins_are_stepped_over_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of pinned blocks that are colder than all others, room for a block cost a
    walk over all of them, out of the heap and in again: a millisecond. Now it takes a few steps,
    counted, and the pinned ones still go when nothing else is left."""
    cold, hot = 3000, 200
    residency = Residency(TierState("tier", cold + hot), REGISTRY[name](cold + hot))
    pinned = [Key(number.to_bytes(32, "big")) for number in range(1, cold + 1)]
    _bring(residency, pinned)
    _bring(residency, [Key(number.to_bytes(32, "little")) for number in range(1, hot + 1)])
    residency.pinned.replace(pinned)
    steps = Counter[str]()
    for step in ("heappop", "heappush"):
        monkeypatch.setattr(heapq, step, _counted(steps, step, getattr(heapq, step)))
    _bring(residency, [Key(b"first".ljust(32))])
    steps.clear()
    for turn in range(100):
        _bring(residency, [Key(f"next {turn}".encode().ljust(32))])
    assert steps.total() < 20 * 100
    assert (residency.evicted, residency.overruled) == (101, 0)
    residency.state.release(residency.reserve(hot + 5))
    assert residency.overruled == 5


def _bring(residency: Residency, chain: list[Key]) -> None:
    slots = residency.reserve(len(chain))
    residency.publish(slots, chain, [ROOT, *chain[:-1]])
    residency.state.release(slots)


def _counted(steps: Counter[str], name: str, of: Callable[..., Any]) -> Callable[..., Any]:
    def step(*args: object) -> object:
        steps[name] += 1
        return of(*args)

    return step
