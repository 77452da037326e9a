"""The compiled tables beside their references: the same answers to the same questions."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core import native
from pagoda.core.identity import Key
from pagoda.core.keyindex import DictIndex
from pagoda.core.recency import DictRecency
from pagoda.core.ring import SlotRing
from pagoda.core.state import release_leases

SLOTS = 40
slots = st.integers(0, SLOTS - 1)


def key(number: int) -> Key:
    """Keys that differ in one byte and share a bucket now and then."""
    return Key(bytes([number % 7]) * 31 + bytes([number]))


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The compiled module."""
    if native.TABLES is None:
        pytest.skip("pagoda._native: not built")
    return native.TABLES


@given(st.lists(st.tuples(st.sampled_from("apg"), slots, st.lists(slots, max_size=40))))
def test_the_indexes_agree(tables: ModuleType, steps: list[tuple[str, int, list[int]]]) -> None:
    """Adding, removing, prefixes, leases: whatever the order, wherever the probes run."""
    real, reference = tables.KeyIndex(SLOTS), DictIndex(SLOTS)
    leases, expected = np.zeros((2, SLOTS), dtype=np.int32)
    states = np.full(SLOTS, 2, dtype=np.uint8)
    states[::9] = 0  # whatever leads there is stale
    held: dict[int, int] = {}
    for what, slot, numbers in steps:
        if what == "a":  # onto a taken slot too: its former key is forgotten
            for number in numbers[:1]:
                added = reference.add(key(number), slot)
                assert real.add(key(number), slot) == added
                if added:
                    held[slot] = number
        elif what == "p" and slot in held:
            real.remove(slot)
            reference.remove(slot)
            del held[slot]
        keys = [key(number) for number in numbers]
        found = reference.lease_prefix(keys, states, 2, expected)
        assert real.lease_prefix(keys, states, 2, leases) == found
        assert real.prefix(keys, states, 2) == found
        assert all(states[slot] == 2 for slot in found)
        assert [real.get(k) for k in keys] == [reference.get(k) for k in keys]
        assert len(real) == len(reference) == len(held)
        assert [real.key_at(s) for s in held] == [reference.key_at(s) for s in held]
    assert (leases == expected).all()


@pytest.mark.parametrize("compiled", [True, False])
def test_an_index_refuses_what_it_cannot_hold(tables: ModuleType, compiled: bool) -> None:
    """Repeated keys, slots that no key leads to, keys of another size."""
    index = tables.KeyIndex(4) if compiled else DictIndex(4)
    index.add_many(key(1) + key(2), np.array([3, 0], dtype=np.int32))
    assert (index.get(key(1)), index.get(key(2)), len(index)) == (3, 0, 2)
    with pytest.raises(ValueError, match="repeats a key"):
        index.add_many(key(3) + key(3), np.array([1, 2], dtype=np.int32))
    with pytest.raises(KeyError):
        index.remove(2)


def test_the_compiled_index_checks_its_arguments(tables: ModuleType) -> None:
    """A wrong size or type is an error, never a look into foreign memory."""
    index = tables.KeyIndex(4)
    with pytest.raises(TypeError, match="32 bytes"):
        index.get(b"short")
    states = np.zeros(4, dtype=np.uint8)
    with pytest.raises(TypeError, match="32 bytes"):
        index.prefix([bytearray(32)], states, 2)
    with pytest.raises(ValueError, match="4 bytes"):
        index.prefix([key(1)], states[:3], 2)
    with pytest.raises(IndexError):
        index.add(key(1), 4)
    with pytest.raises(ValueError, match="int32"):
        index.lease_prefix([key(1)], states, 2, np.zeros(3, dtype=np.int32))
    with pytest.raises(ValueError, match="int32"):
        index.lease_prefix([key(1)], states, 2, np.zeros(4, dtype=np.float32))
    with pytest.raises(ValueError, match="out of range"):
        tables.KeyIndex(-1)


@given(st.lists(st.tuples(st.booleans(), st.lists(slots, max_size=6, unique=True))))
def test_the_orders_agree(tables: ModuleType, steps: list[tuple[bool, list[int]]]) -> None:
    """Touching and removing in any order leaves both with the same oldest slots."""
    real, reference = tables.Recency(SLOTS), DictRecency()
    leases = np.arange(SLOTS, dtype=np.int32) % 3
    for touch, chosen in steps:
        if touch:
            real.touch(chosen)
            reference.touch(chosen)
        else:
            known = [slot for slot in chosen if slot in reference.slots()]
            real.remove(known)
            reference.remove(known)
        assert real.slots() == reference.slots()
        assert len(real) == len(reference)
        assert real.oldest(3, leases) == reference.oldest(3, leases)
    with pytest.raises(KeyError):
        tables.Recency(SLOTS).remove([1])


@given(st.lists(st.sampled_from(range(6)), max_size=8), st.lists(st.integers(0, 2), min_size=6))
def test_releasing_agrees(tables: ModuleType, given_back: list[int], held: list[int]) -> None:
    """The same leases are left and the same slots reported; a bad batch changes nothing."""
    states = np.array([2, 3, 2, 1, 2, 3], dtype=np.uint8)
    outcomes = []
    for release in (tables.release, release_leases):
        leases = np.array(held[:6], dtype=np.int32)
        try:
            last = release(given_back, leases, states, 2)
        except ValueError as error:
            assert leases.tolist() == held[:6]
            outcomes.append((str(error), leases.tolist()))
        else:
            outcomes.append((last, leases.tolist()))
    assert outcomes[0] == outcomes[1]


@given(st.integers(1, 8), st.lists(st.integers(0, 5)))
def test_a_ring_is_a_queue(size: int, steps: list[int]) -> None:
    """Slots leave in the order they came, around the end of the array."""
    ring, queue = SlotRing(size), list(range(size))
    taken: list[int] = []
    for count in steps:
        out, queue = queue[:count], queue[count:]
        assert ring.take(count) == out
        taken += out
        for slot in taken[: count // 2]:
            ring.put(slot)
            queue.append(slot)
        taken = taken[count // 2 :]
        assert ring.slots() == queue
        assert len(ring) == len(queue)
