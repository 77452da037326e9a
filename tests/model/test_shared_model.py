"""Two nodes over one store that lies, beside a model that knows every block's true bytes.

A seed chooses what happens next: offers, probes, restores, clearings, lies, stuck and
released I/O, passing time, and the order in which jobs end. Checked throughout: a hit's bytes
are the block's, a refused block's are zeros, buffers that were given back stay as they were
left, and every offered block is released exactly once. Not covered: jobs that interleave
(they run whole), and a store that mixes two values, which its port excludes.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from shared_harness import SIZE, SPACE, Node, dirty, keys_of, name_of, truth

from pagoda.core.errors import TierFault, TierFull, TierTimeout
from pagoda.core.identity import Key
from pagoda.core.outcome import Hit
from pagoda.store.restore import Restore
from pagoda.testing.clock import FakeClock
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared

PROMPTS = [keys_of(12, salt=salt) for salt in range(6)]
ERRORS = [
    TierFault("down", tier="remote"),
    TierTimeout("late", tier="remote", deadline_s=1.0),
    TierFull("full", tier="remote"),
]
ZEROS = bytes(SIZE)
REUSED = bytes(dirty())


class World:
    """Both nodes, the store, and what is known to be true."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.tier = FaultyShared(MemoryShared())
        self.nodes = [
            Node(self.tier, clock=self.clock, seed=seed * 2 + i, queue_bytes=10 * SIZE)
            for i in range(2)
        ]
        self.offered = [Counter[Key](), Counter[Key]()]
        self.flying: list[Restore] = []
        self.free: list[Restore] = []  # given back, and used again by somebody else
        self.hits = 0
        self.refused = 0

    def step(self) -> None:
        """One thing happens, then every promise is checked."""
        which = self.rng.randrange(2)
        common = [self.offer, self.probe, self.restore, self.restore, self.run, self.run]
        actions = [
            *common,
            *common,
            *common,
            self.lie,
            self.heal,
            self.heal,
            self.stick,
            self.unstick,
            self.unstick,
            self.wait,
        ]
        action = self.rng.choice(actions) if self.rng.random() > 0.005 else self.clear
        action(self.nodes[which], which)
        for node in self.nodes:
            node.poll()
        self.check()

    def offer(self, node: Node, which: int) -> None:
        keys = self.prompt()
        self.offered[which].update(keys)
        node.offer(keys)

    def probe(self, node: Node, which: int) -> None:
        node.level.probe(SPACE, self.prompt())

    def restore(self, node: Node, which: int) -> None:
        keys = max((self.prompt() for _ in range(3)), key=node.level.known_prefix)
        self.flying.append(node.start(keys, wait_s=self.rng.choice([0.5, 2.0, 5.0])))

    def run(self, node: Node, which: int) -> None:
        for _ in range(self.rng.randrange(8)):
            node.executor.step()

    def lie(self, node: Node, which: int) -> None:
        """About some blocks of a prompt, or about the whole store."""
        faults, names = self.tier.faults, [name_of(key) for key in self.prompt()]
        match self.rng.randrange(10):
            case 0:
                faults.swap |= dict(zip(names, self.rng.sample(names, len(names)), strict=True))
            case 1:
                faults.old |= set(names)
            case 2:
                faults.flip |= {name: self.rng.randrange(1 << 20) for name in names}
            case 3:
                faults.cut |= {name: self.rng.randrange(SIZE) for name in names}
            case 4:
                faults.claim |= set(names)
            case 5:
                faults.deny |= set(names)
            case 6:
                faults.lose |= set(names)
            case 7:
                faults.keep |= set(names)
            case 8:
                faults.read_error = self.rng.choice(ERRORS)
            case _:
                faults.write_error = self.rng.choice(ERRORS)

    def heal(self, node: Node, which: int) -> None:
        self.tier.faults.clear()

    def stick(self, node: Node, which: int) -> None:
        node.executor.hold()

    def unstick(self, node: Node, which: int) -> None:
        node.executor.unhold()

    def wait(self, node: Node, which: int) -> None:
        self.clock.advance(self.rng.choice([0.01, 0.01, 0.01, 0.1, 0.1, 0.3, 1.0, 5.0, 40.0]))

    def clear(self, node: Node, which: int) -> None:
        node.level.clear(SPACE)

    def prompt(self) -> list[Key]:
        return self.rng.choice(PROMPTS)[: self.rng.randrange(1, 13)]

    def check(self) -> None:
        for restore in [restore for restore in self.flying if restore.done and restore.drained]:
            self.flying.remove(restore)
            self.judge(restore)
            for buffer in restore.into:
                buffer[:] = REUSED
            self.free.append(restore)
        for restore in self.free:
            assert all(bytes(buffer) == REUSED for buffer in restore.into), "written to after"
        for node, offered in zip(self.nodes, self.offered, strict=True):
            assert node.released <= offered, "released twice"

    def judge(self, restore: Restore) -> None:
        for key, buffer, outcome in zip(restore.keys, restore.into, restore.outcomes, strict=True):
            if isinstance(outcome, Hit):
                self.hits += 1
                assert buffer == truth(key), "a wrong byte was served"
            elif bytes(buffer) != REUSED:  # never ordered: nobody has touched it
                self.refused += 1
                assert bytes(buffer) == ZEROS, "a refused block left bytes behind"

    def finish(self) -> None:
        """Everything works again, and ends."""
        self.tier.faults.clear()
        for node in self.nodes:
            node.executor.unhold()
            node.settle()
        self.check()
        assert not self.flying
        for node, offered in zip(self.nodes, self.offered, strict=True):
            assert node.released == offered
            assert node.level.idle
            assert node.orders.flying == 0


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_and_no_lie_serves_a_wrong_byte(seed):
    """600 random steps a seed."""
    world = World(seed)
    for _ in range(600):
        world.step()
    world.finish()


def test_the_model_reaches_what_it_checks():
    """Over the seeds there are hits, refused blocks, and every kind of trouble."""
    hits = refused = 0
    reasons: set[str] = set()
    for seed in range(12):
        world = World(seed)
        for _ in range(600):
            world.step()
        hits, refused = hits + world.hits, refused + world.refused
        for node in world.nodes:
            reasons |= {event.reason for event in node.events if hasattr(event, "reason")}
    assert hits > 1000
    assert refused > 100
    expected = "absent corrupt misplaced truncated timeout io_error full busy closed"
    assert set(expected.split()) <= reasons
