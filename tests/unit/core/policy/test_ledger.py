"""A ledger becomes the order that would have been kept."""

from __future__ import annotations

import random

import numpy as np
from heat_models import chain

from pagoda.core.identity import ROOT
from pagoda.core.policy.density import DensityOrder
from pagoda.core.policy.ledger import Ledger
from pagoda.core.policy.reuse import BINS, NEUTRAL, WORTHLESS, ReuseModel
from pagoda.core.policy.shared import SharedBlocks
from pagoda.core.policy.uses import RankedUses, Use

SLOTS = 40
NOBODY = np.zeros(SLOTS, dtype=np.int32)


def test_it_becomes_the_order_that_would_have_been_kept() -> None:
    """Whatever comes and goes before and after the ledger is made. One use has many leaves here,
    because most blocks come without a request; which of them goes first depends on which became
    a leaf first, of old ones as of those whose children went."""
    for seed in range(100):
        rng = random.Random(seed)
        walk = Walk(rng)
        walk.steps(rng.randrange(40))
        ledger = walk.fork()
        walk.steps(rng.randrange(40))
        made, kept = ledger.ordered(), walk.kept
        assert made.victims(SLOTS, NOBODY) == kept.victims(SLOTS, NOBODY)
        assert (made.children, made.warm) == (kept.children, kept.warm)
        assert _bins(made) == _bins(kept)


class Walk:
    """Random events, told to an order and to its ledger once there is one."""

    def __init__(self, rng: random.Random) -> None:
        model = ReuseModel()
        model.scores = [[level / (1 + age) for age in range(BINS)] for level in range(40)]
        self.shared = SharedBlocks()
        self.kept = DensityOrder(RankedUses(model), self.shared)
        self.all: list[DensityOrder | Ledger] = [self.kept]
        self._rng = rng
        self._opened: list[list[Use]] = []

    def fork(self) -> Ledger:
        ledger, twins = Ledger.of(self.kept)
        self.all.append(ledger)
        self._opened = [[use, twins[use]] for (use,) in self._opened]
        return ledger

    def steps(self, count: int) -> None:
        for _ in range(count):
            event = self._rng.choice(
                [self._insert, self._insert, self._remove, self._ask, self._end]
            )
            event()

    def _insert(self) -> None:
        """Blocks of several branches at once, which no request asked for."""
        paths = [self._path() for _ in range(3)]
        pairs = {
            pair: None
            for path in paths
            for pair in zip(chain(*path), [ROOT, *chain(*path)], strict=False)
            if pair[0] not in self.kept.slot_of
        }
        free = sorted(set(range(SLOTS)) - self.kept.tracked())[: len(pairs)]
        new = list(pairs)[: len(free)]
        for blocks in self.all:
            blocks.insert(free, [key for key, _ in new], [parent for _, parent in new])

    def _remove(self) -> None:
        """Some that would go next, or any."""
        here = sorted(self.kept.tracked())
        gone = self.kept.victims(3, NOBODY)
        if self._rng.random() < 0.4:
            gone = self._rng.sample(here, min(2, len(here)))
        for blocks in self.all:
            blocks.remove(gone)

    def _ask(self) -> None:
        """A request, or something that is none, uses blocks; some of them are shared."""
        keys, level = chain(*self._path()), self._rng.choice([WORTHLESS, 3, NEUTRAL])
        at_s = self.kept.uses.now_s + self._rng.choice([0.0, 0.5, 9.0, 400.0])
        self.shared.used(keys[: self._rng.randrange(2)], at_s, own=0)
        strays = self._rng.sample(sorted(self.kept.tracked()), len(self.kept.tracked()) // 3)
        for blocks in self.all:
            blocks.touch(strays)
        self._opened.append([blocks.begin(keys, level, at_s) for blocks in self.all])

    def _end(self) -> None:
        if self._opened:
            uses = self._opened.pop(self._rng.randrange(len(self._opened)))
            beside = self._rng.choice([None, *self.kept.slot_of])
            for blocks, use in zip(self.all, uses, strict=True):
                blocks.end(use, NEUTRAL, beside=beside)

    def _path(self) -> list[int]:
        return [self._rng.randrange(3) for _ in range(self._rng.randint(1, 4))]


def _bins(order: DensityOrder) -> dict[int, tuple[int, int]]:
    return {slot: (use.bin, use.slots) for slot, use in order.use.items()}
