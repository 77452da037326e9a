"""The order by hit density names, of all leaves, always the one of least worth."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from heat_models import CLOSE, NaiveOrder, NaiveUse, chain, key
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pagoda.core.identity import ROOT, Key
from pagoda.core.policy.blocks import Blocks
from pagoda.core.policy.density import DensityOrder
from pagoda.core.policy.ledger import Ledger
from pagoda.core.policy.naming import Naming
from pagoda.core.policy.reuse import BINS, NEUTRAL, WORTHLESS, ReuseModel
from pagoda.core.policy.shared import SharedBlocks
from pagoda.core.policy.uses import RankedUses, Use

SLOTS = 14
PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=5)
# On a grid on which ages are exact, with leaps over many bins.
PAUSES = st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 7.0, 40.0, 300.0, 2000.0, 5000.0])
LEVELS = st.sampled_from([WORTHLESS, 1, 2, NEUTRAL])
SEEDS = st.integers(0, 99)


class Machine(RuleBasedStateMachine):
    """Requests, blocks and time, told to an order and to a naive one; and to a ledger, which
    later becomes an order, and perhaps a ledger again."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.shared = ReuseModel(), SharedBlocks()
        order = DensityOrder(RankedUses(self.model), self.shared)
        self.blocks: list[DensityOrder | Ledger] = [order, Ledger.of(order)[0]]
        self.naive = NaiveOrder(self.model, self.shared)
        self.opened: list[tuple[NaiveUse, list[Use], list[Key]]] = []
        self.leased: set[int] = set()
        self.at_s = 0.0

    @initialize(seed=SEEDS)
    def learn(self, seed: int) -> None:
        """Any worths, many of them equal."""
        rng = random.Random(seed)
        rows = [
            [rng.choice([1e-6, 1e-4, 1e-3, 0.02, 0.5]) for _ in range(BINS)] for _ in range(NEUTRAL)
        ]
        self.model.scores = [[0.0] * BINS, *rows]

    @rule(seed=SEEDS)
    def learn_anew(self, seed: int) -> None:
        self.learn(seed)

    @rule(path=PATHS, level=LEVELS, pause_s=PAUSES)
    def begin(self, path: list[int], level: int, pause_s: float) -> None:
        self.at_s += pause_s
        keys = chain(*path)
        uses = [blocks.begin(keys, level, self.at_s) for blocks in self.blocks]
        self.opened.append((self.naive.begin(keys, level, self.at_s), uses, keys))

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), level=LEVELS)
    def end(self, data: st.DataObject, level: int) -> None:
        naive, uses, keys = self.opened.pop(data.draw(st.integers(0, len(self.opened) - 1)))
        beside = data.draw(st.sampled_from([None, keys[-1]]))
        self.naive.end(naive, level, beside=beside)
        for blocks, use in zip(self.blocks, uses, strict=True):
            blocks.end(use, level, beside=beside)

    @rule(path=PATHS, first=st.integers(0, 4))
    def insert(self, path: list[int], first: int) -> None:
        """Blocks of a chain from anywhere on, as far as there is room."""
        pairs = [*zip(chain(*path), [ROOT, *chain(*path)], strict=False)][first:]
        pairs = [pair for pair in pairs if self.naive.slot_of(pair[0]) is None]
        free = sorted(set(range(SLOTS)) - set(self.naive.here))
        slots = free[: len(pairs)]
        keys = [new for new, _ in pairs[: len(slots)]]
        parents = [parent for _, parent in pairs[: len(slots)]]
        self._all(lambda order: order.insert(slots, keys, parents))

    @precondition(lambda self: self.naive.awaiting)
    @rule(data=st.data(), free=st.integers(0, 3))
    def ask_for_admission(self, data: st.DataObject, free: int) -> None:
        """As many blocks of a request as are free, and as are worth less than it."""
        use = data.draw(st.sampled_from(self.naive.awaiting))
        keys = [use.awaits, *[key(9, number) for number in range(5)]]
        below = self.naive.worth_of(use)
        least, most = (
            min(len(keys), free + self.naive.worse(limit))
            for limit in (below * (1 - CLOSE), below * (1 + CLOSE))
        )
        for order in self._orders():
            assert least <= len(order.admits(keys, [ROOT, *keys[:-1]], free)) <= most

    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        slots = self._some(data)
        self._all(lambda order: order.touch(slots))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Cleared, bad, or gone for any other reason: parents before children, too."""
        self._remove(self._some(data))

    @rule(count=st.integers(1, SLOTS))
    def evict(self, count: int) -> None:
        self._remove(next(self._orders()).victims(count, self._leases()))

    @rule(path=PATHS, times=st.integers(1, 3))
    def share(self, path: list[int], times: int) -> None:
        """Other sessions use a chain; it shows once its blocks are used here."""
        for _ in range(times):
            self.shared.used(chain(*path), self.at_s, own=0)

    @rule(data=st.data())
    def lease(self, data: st.DataObject) -> None:
        self.leased = set(self._some(data))

    @rule()
    def turn(self) -> None:
        """The ledger becomes an order, or such an order a ledger."""
        other = self.blocks[1]
        if isinstance(other, Ledger):
            self.blocks[1] = other.ordered()
        else:
            self.blocks[1], twins = Ledger.of(other)
            for _, uses, _ in self.opened:
                uses[1] = twins[uses[1]]

    @invariant()
    def the_least_worth_goes_first(self) -> None:
        answers = []
        for order in self._orders():
            assert order.tracked() == set(self.naive.here)
            everything = order.victims(SLOTS, self._leases())
            self.naive.check_victims(everything, SLOTS, self.leased)
            for count in (0, 1, 2, 5):
                assert order.victims(count, self._leases()) == everything[:count]
            answers.append(everything)
            singly = self._one_by_one(order)
            assert singly == everything[: len(singly)]
        assert answers[0] == answers[-1], "the order that was made later names others"

    @invariant()
    def leaves_and_worths_are_kept_up(self) -> None:
        leaves = self.naive.leaves(self.naive.here)
        hot = {slot for slot, block in self.naive.here.items() if block.heat is not None}
        for order in self._orders():
            filed = [
                slot for _, uses in order.uses.ascending() for _, use in uses for slot in use.leaves
            ]
            assert sorted(filed) == sorted(leaves - hot)
            assert sorted(slot for _, slot in order.warm) == sorted(leaves & hot)
            assert order.warm == sorted(order.warm)
            for slot, block in self.naive.here.items():
                use = order.use[slot]
                assert (use.at_s, use.level) == (block.use.at_s, block.use.level)
                assert use.bin == self.naive.age_bin(slot)
                assert order.heat.get(slot) == block.heat

    @invariant()
    def nothing_is_left_behind(self) -> None:
        """What is kept follows what is here and what is open."""
        for order in self._orders():
            assert set(order.children) == {b.parent for b in self.naive.here.values()} - {ROOT}
            assert set(order.heat) <= set(self.naive.here)
            assert len(order._awaited) == len(self.naive.awaiting)
            assert sum(use.slots for use in set(order.use.values())) == len(self.naive.here)

    def _all(self, change: Callable[[Any], None]) -> None:
        for blocks in (self.naive, *self.blocks):
            change(blocks)

    def _some(self, data: st.DataObject) -> list[int]:
        here = sorted(self.naive.here)
        return data.draw(st.lists(st.sampled_from(here), unique=True)) if here else []

    def _orders(self) -> Iterator[DensityOrder]:
        """The order, and the one that the ledger would become now."""
        for blocks in self.blocks:
            yield blocks if isinstance(blocks, DensityOrder) else self._copy(blocks).ordered()

    def _copy(self, blocks: Blocks) -> Any:
        return deepcopy(blocks, {id(one): one for one in (self.model, self.shared)})

    def _one_by_one(self, order: DensityOrder) -> list[int]:
        """Victims that are asked for singly, and dropped, as long as there are free leaves."""
        copy = self._copy(order)
        gone: list[int] = []
        while self.naive.leaves(set(self.naive.here) - set(gone)) - self.leased:
            gone += copy.victims(1, self._leases())
            copy.remove(gone[-1:])
        return gone

    def _remove(self, slots: list[int]) -> None:
        self._all(lambda order: order.remove(slots))
        self.leased -= set(slots)

    def _leases(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        leases = np.zeros(SLOTS, dtype=np.int32)
        leases[sorted(self.leased)] = 1
        return leases


def test_equally_hot_blocks_go_by_slot_however_many_are_named() -> None:
    """Parents that become leaves while many are named used to come by the time of it instead."""
    state = Machine()
    state.learn(seed=89)
    state.share(path=[0, 0, 2, 0], times=2)
    state.insert(first=0, path=[0, 1])
    state.share(path=[0, 2, 0, 1, 0], times=2)
    state.insert(first=1, path=[2, 1])
    state.insert(first=1, path=[1, 1])
    state.insert(first=4, path=[1, 0, 0, 0, 0])
    state.learn_anew(seed=89)
    state.share(path=[2, 0, 1, 1], times=2)
    state.share(path=[0, 0, 0], times=2)
    state.insert(first=3, path=[2, 2, 1, 0, 0])
    state.insert(first=2, path=[0, 0, 0, 1, 1])
    state.the_least_worth_goes_first()


def test_it_is_the_naive_order() -> None:
    """Whatever is used, inserted, dropped, shared, leased and learned in between; so is an order
    that is made from a ledger at any time."""
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=70, stateful_step_count=35, deadline=None)
    )


def test_of_equal_parents_the_one_that_was_freed_last_goes_first() -> None:
    """As it does when victims are asked for one by one. Two blocks that one use holds, which
    are worth more than their children, stand alike in a walk over many."""
    order = DensityOrder(RankedUses(ReuseModel()), SharedBlocks())
    order.insert([0, 1], [key(1), key(2)], [ROOT, ROOT])
    order.insert([2, 3], [key(1, 1), key(2, 1)], [key(1), key(2)])
    order.touch([0, 1])
    nobody = np.zeros(SLOTS, dtype=np.int32)
    many = order.victims(4, nobody)
    for victim in many:
        assert order.victims(1, nobody) == [victim]
        order.remove([victim])
    assert many == [3, 2, 0, 1]


_CHANGES: dict[str, Callable[[DensityOrder, Use], object]] = {
    "goes": lambda order, _: order.remove([2]),
    "is asked for": lambda order, _: order.begin(chain(4), 30, 1.0),
    "is touched": lambda order, _: order.touch([2]),
    "gets a child": lambda order, _: order.insert([4], [key(1, 2, 3)], [key(1, 2)]),
    "gets a neighbour": lambda order, _: order.insert([4], [key(8)], [ROOT]),
    "loses its neighbour": lambda order, _: order.remove([3]),
    "lies beside a chain": lambda order, use: order.end(use, 2, beside=key(1, 2)),
    "is worth something else": lambda order, use: order.end(use, 30, beside=None),
    "is judged anew": lambda order, _: setattr(order.uses.model, "scores", _scores(-1)),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_victims_named_at_admission_are_named_anew_after_a_change(change: str) -> None:
    """What an admission found worst is what goes for the new blocks, and is not looked for
    twice; unless something has changed meanwhile, or a lease holds one of them. Each change
    here makes other victims of what is there, or other slots."""
    order = DensityOrder(RankedUses(ReuseModel()), SharedBlocks())
    order.uses.model.scores = _scores(1)
    use = order.begin(chain(4), 2, 0.0)
    order.insert([3], [key(4)], [ROOT])
    order.insert([1, 2], chain(1, 2), [ROOT, key(1)])
    order.begin(chain(9, 8), 30, 0.5)
    leases = np.zeros(SLOTS, dtype=np.int32)
    assert len(order.admits(chain(9, 8), [ROOT, key(9)], 0)) == 2
    named = order.victims(2, leases)
    leases[named[0]] = 1
    assert named[0] not in order.victims(2, leases)
    leases[:] = 0
    _CHANGES[change](order, use)
    victims = order.victims(2, leases)
    assert victims == Naming(order, 2, leases).chosen


def _scores(sign: int) -> list[list[float]]:
    """By level, whatever the age."""
    return [[30.0 + sign * level] * BINS for level in range(40)]
