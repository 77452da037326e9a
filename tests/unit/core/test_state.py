"""The residency state against a naive model, and its invariants against damage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pagoda.core import native
from pagoda.core.identity import ROOT, Key
from pagoda.core.policy import Lru
from pagoda.core.residency import Residency
from pagoda.core.state import SlotState, TierState

SLOTS = 6


def key(number: int) -> Key:
    """A key for tests."""
    return Key(number.to_bytes(32, "big"))


class ResidencyMachine(RuleBasedStateMachine):
    """A Residency beside a model that keeps plain dictionaries and knows what each slot holds."""

    def __init__(self) -> None:
        super().__init__()
        self.real = Residency(TierState("test", SLOTS), Lru(SLOTS))
        self.published: dict[Key, int] = {}
        self.reserved: list[int] = []
        self.leases: Counter[int] = Counter()
        self.handles: list[tuple[int, int]] = []  # leased (slot, generation at lease)
        self.quarantined: set[int] = set()
        self.used: list[Key] = []  # published keys, least recently used first
        self.next_key = 0

    @rule(count=st.integers(1, SLOTS))
    def reserve(self, count: int) -> None:
        before = dict(self.published)
        free = SLOTS - len(before) - len(self.reserved) - len(self.quarantined)
        free -= len({s for s, _ in self.handles} - set(before.values()) - self.quarantined)
        order = [k for k in self.used if not self.leases[before[k]]]
        slots = self.real.reserve(count)
        expected = min(count, max(free, 0) + len(order))
        assert len(slots) == expected, "reserve takes free and unleased slots, no fewer"
        evicted = [k for k in before if self.real.state.slot_of(k) is None]
        assert set(evicted) == set(order[: len(evicted)]), "the least recently used go first"
        assert len(evicted) == max(0, expected - max(free, 0)), "no block is evicted for nothing"
        for k in evicted:
            del self.published[k]
            self.used.remove(k)
        self.reserved += slots

    @precondition(lambda self: self.reserved)
    @rule(again=st.booleans())
    def publish(self, again: bool) -> None:
        slot = self.reserved[-1]
        if again and self.published:
            known = next(iter(self.published))
            assert self.real.publish([slot], [known], [ROOT]) == []
            assert self.real.state.state_of(slot) == SlotState.RESERVED
            return
        self.next_key += 1
        assert self.real.publish([slot], [key(self.next_key)], [ROOT]) == [slot]
        self.real.state.release([slot])
        self.reserved.pop()
        self.published[key(self.next_key)] = slot
        self.used.append(key(self.next_key))

    @precondition(lambda self: self.reserved)
    @rule()
    def abandon(self) -> None:
        self.real.state.abandon([self.reserved.pop()])

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def lease(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(sorted(self.published)))
        slot = self.published[found]
        if data.draw(st.booleans()):
            assert self.real.lease_prefix([found, key(0)]) == [slot]
        else:
            self.real.state.lease([slot])
            self.real.touch([slot])
        self.used.remove(found)
        self.used.append(found)
        self.leases[slot] += 1
        self.handles.append((slot, self.real.state.generation(slot)))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        slot, generation = data.draw(st.sampled_from(self.handles))
        if slot not in self.quarantined:
            assert self.real.state.generation(slot) == generation, "reused under a lease"
        self.handles.remove((slot, generation))
        self.leases[slot] -= 1
        self.real.state.release([slot])

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(sorted(self.published)))
        slot = self.published.pop(found)
        self.used.remove(found)
        generation = self.real.state.generation(slot)
        self.real.retire([slot])
        assert self.real.state.slot_of(found) is None, "an evicted key leads nowhere"
        freed = self.real.state.state_of(slot) == SlotState.FREE
        assert freed == (self.leases[slot] == 0), "freed exactly when nobody holds it"
        assert self.real.state.generation(slot) == generation + freed

    @precondition(lambda self: self.published and len(self.quarantined) < SLOTS - 2)
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(sorted(self.published)))
        slot = self.published.pop(found)
        self.used.remove(found)
        self.real.quarantine([slot])
        self.quarantined.add(slot)

    @invariant()
    def agrees(self) -> None:
        self.real.check_invariants()
        assert dict(self.real.state.published()) == self.published
        for k, slot in self.published.items():
            assert self.real.state.prefix([k, key(0)]) == [slot]
            assert self.real.state.key_of(slot) == k
        assert self.real.state.lease_count() == sum(self.leases.values()) + len(self.reserved)


@pytest.mark.parametrize("tables", ["compiled", "python"])
def test_a_residency_agrees_with_its_model(tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any sequence of transitions, with the compiled tables and with the reference."""
    if tables == "python":
        monkeypatch.setattr(native, "TABLES", None)
    elif native.TABLES is None:
        pytest.skip("pagoda._native: not built")
    run_state_machine_as_test(
        ResidencyMachine, settings=settings(max_examples=60, stateful_step_count=50)
    )


def _filled() -> TierState:
    state = TierState("test", 4)
    slots = state.reserve(2)
    state.publish(slots, [key(1), key(2)])
    state.release(slots[:1])
    return state


DAMAGE: dict[str, Callable[[TierState], object]] = {
    "a slot twice in the free list": lambda s: s._free._ring.__setitem__(3, 2),
    "a published slot in the free list": lambda s: s._free.put(0),
    "a free slot lost": lambda s: s._free.take(1),
    "a key lost": lambda s: s._index.remove(0),
    "a key that leads to a free slot": lambda s: s._index.add(key(9), 3),
    "two keys for one slot": lambda s: (s._index.add(key(9), 0), s._index.add(key(1), 3)),
    "a negative lease": lambda s: s.leases.__setitem__(0, -1),
    "a lease on a free slot": lambda s: s.leases.__setitem__(3, 1),
    "a retiring slot that nobody holds": lambda s: (
        s._states.__setitem__(0, SlotState.RETIRING),
        s._index.remove(0),
    ),
    "a reserved slot with two leases": lambda s: s.leases.__setitem__(s.reserve(1)[0], 2),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_invariants_notice_damage(damage: str) -> None:
    """Each kind of damage fails the check; an undamaged state passes it."""
    state = _filled()
    state.check_invariants()
    DAMAGE[damage](state)
    with pytest.raises(AssertionError):
        state.check_invariants()


def test_a_policy_out_of_step_is_noticed() -> None:
    """A policy that forgot a slot would never evict it."""
    residency = Residency(TierState("test", 4), Lru(4))
    residency.publish(residency.reserve(1), [key(1)], [ROOT])
    residency.check_invariants()
    residency._policy.remove([0])
    with pytest.raises(AssertionError, match="policy out of step"):
        residency.check_invariants()


def test_a_leased_slot_is_never_reserved() -> None:
    """The incident: an eviction that takes a block which a reader still holds."""
    residency = Residency(TierState("test", 2), Lru(2))
    slots = residency.reserve(2)
    residency.publish(slots, [key(1), key(2)], [ROOT, key(1)])
    residency.state.release(slots[1:])
    assert residency.reserve(2) == slots[1:]
    assert residency.state.slot_of(key(1)) == slots[0]


def test_the_tail_of_a_prefix_is_evicted_first() -> None:
    """A tail without its head is useless, so the head goes last."""
    residency = Residency(TierState("test", 4), Lru(4))
    slots = residency.reserve(4)
    keys = [key(n) for n in range(4)]
    residency.publish(slots, keys, [ROOT, *keys[:-1]])
    residency.state.release(slots)
    residency.reserve(1)
    assert residency.state.prefix(keys) == slots[:3]
    residency.touch(slots[:3])
    residency.reserve(1)
    assert residency.state.prefix(keys) == slots[:2]


def test_adoption_lifts_generations_above_all_that_were_found() -> None:
    """A slot whose header was lost must not reuse a generation that a header still carries."""
    state = TierState("test", 4)
    state.adopt(
        np.array([2, 0], dtype=np.int32),
        key(1) + key(2),
        generations=np.array([9, 3], dtype=np.uint64),
        floor=12,  # a third header, dropped since, said 11
    )
    assert (state.slot_of(key(1)), state.slot_of(key(2))) == (2, 0)
    assert (state.generation(2), state.generation(0)) == (9, 3)
    assert min(state.generation(1), state.generation(3)) > 11
    state.check_invariants()


@pytest.mark.parametrize("look", ["prefix", "lease_prefix", "slot_of"])
def test_a_key_that_outlived_its_block_is_counted_and_leads_nowhere(look: str) -> None:
    """The incident's kind: an eviction frees a slot and forgets to forget its key."""
    state = _filled()
    state._states[0] = SlotState.RESERVED  # somebody else's now
    if look == "slot_of":
        assert state.slot_of(key(1)) is None
    else:
        assert getattr(state, look)([key(1), key(2)]) == []
    assert state.stale == 1
    assert state.leases[0] == 0
    assert state.slot_of(key(1)) is None
    assert state.stale == 1, "it was forgotten"
    assert state.prefix([key(2)]) == [1]


def test_a_slot_has_one_key() -> None:
    """Publishing over a key that was not forgotten leaves only the newer one."""
    state = _filled()
    state._states[0] = SlotState.RESERVED
    assert state.publish([0], [key(5)]) == [0]
    assert state.slot_of(key(1)) is None
    assert state.slot_of(key(5)) == 0
    state.check_invariants()


def test_a_key_that_led_nowhere_can_be_published_again() -> None:
    """Were it taken for known, its block could never be found again."""
    state = _filled()
    state._states[0] = SlotState.RETIRING
    slots = state.reserve(1)
    assert state.publish(slots, [key(1)]) == slots
    assert state.slot_of(key(1)) == slots[0]
