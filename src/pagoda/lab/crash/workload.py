"""The work that is interrupted: a real store over memory and a drive, one seed a run.

Chains are saved into far fewer slots than they need, so that slots are rewritten all the
time; now and then the store is cleared, or closed and opened again. I/O runs in an order
drawn from the seed, one job at a time, so that a run repeats operation for operation.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagoda.core.identity import Key
from pagoda.core.outcome import Outcome
from pagoda.lab.crash.blocks import BLOCK_BYTES, blocks_of, buffer, key_of
from pagoda.lab.crash.ledger import Act, Event
from pagoda.lab.crash.witness import Witness
from pagoda.seal.header import HEADER_BYTES
from pagoda.store.executor import Runtime
from pagoda.store.store import Store
from pagoda.store.writer import Block
from pagoda.testing.clock import FakeClock
from pagoda.testing.executor import SteppedExecutor
from pagoda.tiers.drive.file import Opener, SlabFile
from pagoda.tiers.drive.superblock import STRIPE_BYTES
from pagoda.tiers.drive.tier import DriveConfig, DriveTier
from pagoda.tiers.host import HostTier
from pagoda.tiers.port import Tier
from pagoda.tiers.sealed import SealedTier

CHAINS = 9
LONGEST = 4  # blocks of a chain
DRIVE_SLOTS = 12
HOST_SLOTS = 6


def drive_in(directory: Path, opener: Opener = SlabFile) -> DriveTier:
    """The workload's drive."""
    config = DriveConfig(
        directory=directory,
        capacity_bytes=STRIPE_BYTES + DRIVE_SLOTS * BLOCK_BYTES,
        slot_bytes=BLOCK_BYTES,
        free_floor_bytes=0,
    )
    assert DRIVE_SLOTS * HEADER_BYTES < STRIPE_BYTES, "the table fits the first stripe"
    return DriveTier(config, opener=opener)


class Machine:
    """A store that is stepped by hand. `now_ms` counts the blocks' times."""

    def __init__(
        self, tiers: list[Tier], *, rng: random.Random, now_ms: itertools.count[int]
    ) -> None:
        self._executor = SteppedExecutor(rng)
        self.store = Store(
            [[SealedTier(tier)] for tier in tiers],
            runtime=Runtime(
                executor=self._executor, clock=FakeClock(), wall_ms=lambda: next(now_ms)
            ),
        )
        self.store.rebuild()

    def step(self) -> bool:
        """Let one I/O job run; False when there is none."""
        ran = self._executor.step()
        self.store.poll()
        return ran

    def settle(self) -> None:
        """Run I/O until nothing moves any more."""
        self.store.poll()
        while self.step():
            pass

    def save(self, chain: int, length: int, version: int) -> None:
        """Queue the first blocks of a chain."""
        self.store.save(blocks_of(chain, length, version), _forget)

    def read(self, key: Key) -> tuple[Outcome, memoryview]:
        """Restore one block."""
        into = buffer()
        restore = self.store.restore([key], [into])
        self.settle()
        return restore.outcomes[0], into

    def close(self) -> None:
        """Commit everything and let go."""
        self.settle()
        self.store.close(flush_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where a workload runs, and which: the same plan does the same operations."""

    directory: Path
    seed: int
    steps: int


class Workload:
    """A run of a plan through `opener`; `tell` hears what was promised at which `position`."""

    def __init__(
        self,
        plan: Plan,
        *,
        opener: Opener,
        tell: Callable[[Event], None],
        position: Callable[[], int],
    ) -> None:
        self._plan = plan
        self._opener = opener
        self._tell = tell
        self._position = position
        self._rng = random.Random(plan.seed)  # noqa: S311 - a workload, no secret
        self._now_ms = itertools.count(1_000_000)
        self._versions = itertools.count(1)

    def run(self) -> None:
        """Do all steps and close."""
        self._machine = self._open()
        for _ in range(self._plan.steps):
            act = self._rng.choices(
                [self._save, self._read, self._clear, self._reopen], [80, 10, 4, 6]
            )[0]
            act()
            for _ in range(self._rng.randrange(8)):
                self._machine.step()
        self._machine.close()

    def _open(self) -> Machine:
        drive = drive_in(self._plan.directory, self._opener)
        witness = Witness(drive, tell=self._tell, position=self._position)
        host = HostTier(slots=HOST_SLOTS, slot_bytes=BLOCK_BYTES)
        return Machine([host, witness], rng=self._rng, now_ms=self._now_ms)

    def _save(self) -> None:
        chain, length = self._rng.randrange(CHAINS), self._rng.randint(1, LONGEST)
        self._machine.save(chain, length, next(self._versions))

    def _read(self) -> None:
        self._machine.read(key_of(self._rng.randrange(CHAINS), self._rng.randrange(LONGEST)))

    def _clear(self) -> None:
        self._machine.store.clear()
        self._machine.settle()
        self._tell(Event(Act.CLEARED, self._position()))

    def _reopen(self) -> None:
        self._machine.close()
        self._machine = self._open()


def _forget(block: Block) -> None:
    """The bytes of a stored block are nobody's any more."""
    del block


def all_keys() -> list[Key]:
    """Every block that a workload may have stored."""
    return [key_of(chain, depth) for chain in range(CHAINS) for depth in range(LONGEST)]
