"""The real store on fake time and broken tiers, beside a model that knows every true byte.

Faults: flipped bits, short reads, lost and misdirected writes, errors of reading and
writing, stuck I/O, restarts. Checked after every step: no hit with wrong bytes, no buffer
left dirty, invariants of every level, each saved block's memory given back exactly once.
Not covered: torn headers and power cuts (tests/crash).
"""

from __future__ import annotations

import random

import pytest
from store_harness import SIZE, Harness, keys_of, truth

from pagoda.core.errors import TierFault, TierFull, TierTimeout
from pagoda.core.outcome import Hit, Miss
from pagoda.store.restore import Restore

CHAINS = [keys_of(6, salt=salt) for salt in range(5)]


class Run:
    """One seeded life of a store."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.harness = Harness(upper=7, lower=12, seed=seed)
        self.saved = 0
        self.flying: list[tuple[Restore, list[bytes], list[memoryview]]] = []
        self.hits = 0

    def step(self) -> None:
        """Do one random thing, then check."""
        actions = [self.save, self.restore, self.io, self.io, self.io, self.time, self.fault]
        self.rng.choice(actions)()
        if self.rng.random() < 0.01:
            self.rng.choice([self.restart, self.clear])()
        self.harness.store.poll()
        self.check()

    def save(self) -> None:
        chain = self.rng.choice(CHAINS)[: self.rng.randint(1, 6)]
        self.saved += len(chain)
        self.harness.save(chain)

    def restore(self) -> None:
        chain = self.rng.choice(CHAINS)[: self.rng.randint(1, 6)]
        restore, buffers = self.harness.start(chain)
        self.flying.append((restore, list(chain), buffers))

    def io(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.harness.executor.step()

    def time(self) -> None:
        self.harness.clock.advance(self.rng.choice([0.1, 0.5, 1.0, 6.0]))
        if self.rng.random() < 0.2:
            self.harness.executor.hold()
        elif self.rng.random() < 0.5:
            self.harness.executor.unhold()

    def fault(self) -> None:
        tier = self.rng.choice([self.harness.upper, self.harness.lower])
        tier.faults.clear()
        slot, other = (self.rng.randrange(tier.geometry.slots) for _ in range(2))
        match self.rng.randrange(10):
            case 0:
                tier.faults.flip_on_read.add(slot)
            case 1:
                tier.faults.short_read[slot] = self.rng.randrange(SIZE)
            case 2:
                tier.faults.lose_write.add(slot)
            case 3:
                tier.faults.misdirect_write[slot] = other
            case 4:
                tier.faults.read_error[slot] = TierFault("broken", tier=tier.name)
            case 5:
                tier.faults.read_error[slot] = TierTimeout("late", tier=tier.name, deadline_s=1)
            case 6:
                tier.faults.write_error = TierFull("full", tier=tier.name)
            case 7:
                tier.faults.commit_error = TierFault("broken", tier=tier.name)

    def restart(self) -> None:
        """Everything in flight is lost with the process; media keep what they have."""
        self.harness.executor.unhold()
        while self.harness.executor.step():
            pass
        self.harness.open()
        self.flying.clear()
        self.saved = 0
        self.harness.released.clear()

    def clear(self) -> None:
        self.harness.store.clear()
        for chain in CHAINS:
            assert self.harness.store.match(chain[:1]) == 0, "a cleared block is found"

    def check(self) -> None:
        for restore, keys, buffers in self.flying:
            if not restore.done:
                continue
            for key, buffer, outcome in zip(keys, buffers, restore.outcomes, strict=True):
                if isinstance(outcome, Hit):
                    assert buffer == truth(key), "a wrong byte was handed over"
                    self.hits += 1
                elif restore.drained and not isinstance(outcome, Miss):
                    assert bytes(buffer) in (bytes(SIZE), bytes(truth(key)))
        self.flying = [entry for entry in self.flying if not entry[0].drained]
        self.harness.store.check_invariants()
        assert sum(self.harness.released.values()) <= self.saved

    def finish(self) -> None:
        """With faults gone and I/O done, nothing is left over."""
        self.harness.upper.faults.clear()
        self.harness.lower.faults.clear()
        self.harness.executor.unhold()
        self.harness.settle()
        self.check()
        assert self.harness.store.idle
        assert sum(self.harness.released.values()) == self.saved, "a block was never given back"
        assert not self.flying


@pytest.mark.parametrize("seed", range(12))
def test_no_wrong_byte_is_ever_handed_over(seed: int) -> None:
    """A thousand random steps; the seed in the test's name reproduces the run."""
    run = Run(seed)
    for _ in range(1000):
        run.step()
    run.finish()
    assert run.hits > 30, "the run must exercise hits, or it proves nothing"
