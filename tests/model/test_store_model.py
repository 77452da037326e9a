"""The real store on fake time and broken tiers, beside a model that knows every true byte.

Faults: flipped bits, short reads, lost and misdirected writes, errors of reading and
writing, stuck I/O, restarts. Checked after every step: no hit with wrong bytes, no buffer
left dirty, invariants of every level, each saved block's memory given back exactly once.

With a pool of drives, also: drives that are drained, lost, full, ill, over their budget, or
cannot keep their account. Checked then: no drive is written beyond its budget, whatever is
restarted when; a drained one gets no block; a restart finds every block that a sound drive
held; no block lies on two drives.

Not covered: torn headers and power cuts (tests/crash), jobs that interleave (the simulation).
"""

from __future__ import annotations

import random

import pytest
from pool_harness import GIB, Drive, Pool
from store_harness import SIZE, Harness, keys_of, truth

from pagoda.core.budget import DAY_S, Endurance
from pagoda.core.errors import TierFault, TierFull, TierTimeout
from pagoda.core.outcome import Hit, Miss
from pagoda.machine.smart import DriveHealth
from pagoda.store.health import Space
from pagoda.store.restore import Restore
from pagoda.store.trust import Fence
from pagoda.testing.faults import FaultyTier

CHAINS = [keys_of(6, salt=salt) for salt in range(5)]


class Run:
    """One seeded life of a store."""

    def __init__(self, seed: int, harness: Harness | None = None) -> None:
        self.rng = random.Random(seed)
        self.harness = harness or Harness(upper=7, lower=12, seed=seed)
        self.saved = 0
        self.flying: list[tuple[Restore, list[bytes], list[memoryview]]] = []
        self.hits = 0

    def actions(self) -> list:
        """What may happen next, each equally likely."""
        return [self.save, self.restore, self.io, self.io, self.io, self.time, self.fault]

    def tiers(self) -> list[FaultyTier]:
        """What can break."""
        return [self.harness.upper, self.harness.lower]

    def step(self) -> None:
        """Do one random thing, then check."""
        self.rng.choice(self.actions())()
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
        tier = self.rng.choice(self.tiers())
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
        for tier in self.tiers():
            tier.faults.clear()
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


class PoolRun(Run):
    """One seeded life of a store over memory and three drives."""

    DAY = Endurance(day_bytes=60 * SIZE)

    def __init__(self, seed: int) -> None:
        self.pool = Pool(
            drives=3, slots=8, upper=7, endurance=self.DAY, looked_after=True, seed=seed
        )
        super().__init__(seed, self.pool)
        self.began_s = self.pool.clock()
        self.written = dict.fromkeys((drive.tier.name for drive in self.pool.drives), 0)
        self.drained: set[str] = set()
        self.fenced = 0
        for drive in self.pool.drives:
            self._spy_on(drive)

    def actions(self) -> list:
        return [*super().actions() * 5, self.day, self.spend, self.health, self.drain, self.lose]

    def tiers(self) -> list[FaultyTier]:
        return [self.pool.upper, *(drive.tier for drive in self.pool.drives)]

    def day(self) -> None:
        """Budgets fill; fences get their trials and looks."""
        self.pool.clock.advance(self.rng.choice([61, 601, DAY_S / 4, DAY_S]))

    def spend(self) -> None:
        """The account cannot be kept for a while, or can again."""
        drive = self.rng.choice(self.pool.drives)
        broken = TierFault("cannot be kept", tier=drive.tier.name)
        drive.ledger_error = None if drive.ledger_error else broken

    def health(self) -> None:
        drive = self.rng.choice(self.pool.drives)
        ill = self.rng.random() < 0.2
        drive.space = Space(free_bytes=0 if self.rng.random() < 0.2 else GIB, floor_bytes=1)
        drive.health = DriveHealth(used_percent=101 if ill else 5)

    def drain(self) -> None:
        """Runs that are under way end first: they were given before."""
        if self.drained or self.rng.random() < 0.9:
            return
        self.pool.executor.unhold()
        self.pool.settle()
        name = self.rng.choice(self.pool.drives).tier.name
        self.pool.store.drain(name)
        self.drained.add(name)

    def lose(self) -> None:
        """A restart without one of the drives, and another with it."""
        if self.rng.random() < 0.9:
            return
        lost = self.rng.choice(self.pool.drives)
        scan = lost.tier.scan
        lost.tier.scan = self._dead
        self.restart()
        assert sum(level.trust.lost for level in self.pool.store.levels()) == 1
        lost.tier.scan = scan

    def restart(self) -> None:
        """A sound drive's committed blocks are all found again, each once."""
        held = {
            key
            for i, drive in enumerate(self.pool.drives)
            if drive.tier.scan != self._dead and not self.pool.level(i).trust.lost
            for key, _ in self.pool.level(i).state.published()
        }
        self.drained.clear()
        self.pool.upper = FaultyTier(type(self.pool.upper.inner)("upper", 7))
        super().restart()
        found = [self.pool.where([key])[0] for key in held]
        assert all(len(drives) == 1 for drives in found), "a block is gone, or there twice"

    def check(self) -> None:
        super().check()
        days = (self.pool.clock() - self.began_s) / DAY_S
        assert self.DAY.day_bytes is not None
        for name, size_bytes in self.written.items():
            assert size_bytes <= self.DAY.day_bytes * (1 + days) + 1, f"{name} is over its budget"
        self.fenced += sum(
            not level.writable(self.pool.clock()) for level in self.pool.store.levels()
        )

    def finish(self) -> None:
        for drive in self.pool.drives:
            drive.ledger_error = None
        super().finish()

    def _dead(self) -> None:
        raise TierFault("no such device", tier="drive")

    def _spy_on(self, drive: Drive) -> None:
        """Count what arrives at the medium; a trial's block is one of the store's own."""
        name, write = drive.tier.name, drive.tier.write

        def spy(slots: list[int], payloads: list[memoryview]) -> None:
            level = next(level for level in self.pool.store.levels() if level.name == name)
            if not level.trust.fenced(Fence.FAULTS):
                assert name not in self.drained, "a drained drive is written"
                self.written[name] += len(slots) * SIZE
            write(slots, payloads)

        drive.tier.write = spy


@pytest.mark.parametrize("seed", range(12))
def test_no_drive_of_a_pool_costs_more_than_its_own_blocks(seed: int) -> None:
    """A thousand random steps over three drives with troubles of their own."""
    run = PoolRun(seed)
    for _ in range(1000):
        run.step()
    run.finish()
    assert run.hits > 30, "the run must exercise hits, or it proves nothing"
    assert run.fenced > 30, "and drives that rest"
    assert sum(map(bool, run.written.values())) > 1, "and several drives"
