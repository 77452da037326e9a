"""Pinned slots beside a naive model: they go last, hold nothing up, and follow their keys."""

from __future__ import annotations

from collections import Counter

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

from pagoda.core.identity import ROOT, Key
from pagoda.core.policy import REGISTRY
from pagoda.core.residency import Residency
from pagoda.core.state import TierState

SLOTS = 6
CHAINS, DEPTH = 4, 3


def key(chain: int, depth: int) -> Key:
    """A block of some chain; a chain's blocks follow each other."""
    return Key(bytes([chain + 1, depth]) + bytes(30))  # zeros alone are the root


def run(chain: int, blocks: int) -> list[Key]:
    """The first blocks of a chain."""
    return [key(chain, depth) for depth in range(blocks)]


ANY_CHAIN = st.integers(0, CHAINS - 1)
ANY_RUN = st.builds(run, ANY_CHAIN, st.integers(0, DEPTH))


class PinnedMachine(RuleBasedStateMachine):
    """A Residency whose pins a plain set knows, too."""

    policy = "lru"

    def __init__(self) -> None:
        super().__init__()
        self.real = Residency(TierState("test", SLOTS), REGISTRY[self.policy](SLOTS))
        self.pinned: set[Key] = set()
        self.leases: Counter[int] = Counter()

    @rule(runs=st.lists(ANY_RUN, max_size=3))
    def pin(self, runs: list[list[Key]]) -> None:
        """Pins are exchanged, whatever is here."""
        self.pinned = {block for one in runs for block in one}
        self.real.pinned.replace(self.pinned)

    @rule(some=ANY_RUN, pinned=st.booleans())
    def change(self, some: list[Key], pinned: bool) -> None:
        """Some are pinned as well, or no more."""
        if pinned:
            self.pinned |= set(some)
            self.real.pinned.add(some)
        else:
            self.pinned -= set(some)
            self.real.pinned.remove(some)

    @rule(chain=ANY_CHAIN, blocks=st.integers(1, DEPTH), keep=st.booleans())
    def use(self, chain: int, blocks: int, keep: bool) -> None:
        """A request finds what is here of a chain, and stores the rest in prefix order."""
        keys = run(chain, blocks)
        held = self.real.lease_prefix(keys)
        for at in range(len(held), len(keys)):
            slots = self.reserve_one()
            if not slots:
                break
            parent = keys[at - 1] if at else ROOT
            if self.real.publish(slots, [keys[at]], [parent]):
                held += slots
            else:
                self.real.state.abandon(slots)
                break
        if keep:
            self.leases.update(held)
        else:
            self.real.state.release(held)

    def reserve_one(self) -> list[int]:
        """A slot; the eviction that it takes is held against the promise."""
        state, before = self.real.state, dict(self.real.state.published())
        free = state.free_count()
        unleased = [block for block, slot in before.items() if not state.leased(slot)]
        overruled = self.real.overruled
        slots = self.real.reserve(1)
        gone = [block for block in before if state.slot_of(block) is None]
        assert len(slots) == min(1, free + len(unleased)), "a pin held a reservation up"
        assert len(gone) == (1 if slots and not free else 0)
        spared = [block for block in unleased if block not in self.pinned]
        pinned_gone = [block for block in gone if block in self.pinned]
        assert not (pinned_gone and spared), "a pinned block went beside one that could go"
        assert self.real.overruled - overruled == len(pinned_gone), "it is counted"
        return slots

    @precondition(lambda self: +self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A request is over."""
        slot = data.draw(st.sampled_from(sorted(+self.leases)))
        self.leases[slot] -= 1
        self.real.state.release([slot])

    @rule(chain=ANY_CHAIN)
    def look(self, chain: int) -> None:
        """Looking up pins, leases and renews nothing."""
        before = (self.real.pinned.count(), self.real.state.lease_count())
        self.real.state.prefix(run(chain, DEPTH))
        assert before == (self.real.pinned.count(), self.real.state.lease_count())

    @rule(chain=ANY_CHAIN, bad=st.booleans())
    def lose(self, chain: int, bad: bool) -> None:
        """A chain's last block is withdrawn, or goes bad."""
        found = self.real.state.prefix(run(chain, DEPTH))
        if bad and found:
            self.real.quarantine(found[-1:])
            self.real = self._without_quarantine(found[-1])
        elif found:
            self.real.retire(found[-1:])

    def _without_quarantine(self, slot: int) -> Residency:
        """A fresh tier with the same pins: quarantined slots never come back."""
        assert not self.real.pinned.among([slot]), "a bad block's slot is pinned no more"
        self.real.check_invariants()
        fresh = Residency(TierState("test", SLOTS), REGISTRY[self.policy](SLOTS))
        fresh.pinned.replace(self.pinned)
        self.leases.clear()
        return fresh

    @invariant()
    def pins_follow_keys(self) -> None:
        """Exactly the published blocks with pinned keys are pinned, and no pin is a lease."""
        state = self.real.state
        expected = {block for block, _ in state.published()} & self.pinned
        assert self.real.pinned.count() == len(expected)
        mask = self.real.pinned.mask
        if mask is not None:
            assert {state.key_of(slot) for slot in range(SLOTS) if mask[slot]} == expected
        assert state.lease_count() == sum(self.leases.values())
        self.real.check_invariants()


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_pins_hold_under_every_policy(policy: str) -> None:
    """Random walks of requests, pins and losses, whatever the policy is."""
    machine = type("Machine", (PinnedMachine,), {"policy": policy})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=30))


def test_a_pinned_block_is_always_worth_its_place() -> None:
    """What the policy would let pass is stored when it is pinned, with its parents."""
    real = Residency(TierState("test", SLOTS), REGISTRY["lru"](SLOTS))
    real._policy.admits = lambda keys, parents, free: []  # type: ignore[method-assign]  # refuses all
    keys = run(0, 3)
    parents = [ROOT, *keys[:2]]
    assert list(real.admits(keys, parents)) == []
    real.pinned.replace(keys[:2])
    assert list(real.admits(keys, parents)) == [0, 1]
