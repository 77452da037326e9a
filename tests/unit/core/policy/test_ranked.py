"""The order of slots by rank, against a sorted list."""

from __future__ import annotations

import random

import numpy as np

from pagoda.core.policy.ranked import Ranked

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
    assert len(order._heap) < 200
