"""One node: an engine's memory over a real store, its drives, and its ends and restarts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pagoda.core.budget import Endurance
from pagoda.core.identity import Key
from pagoda.lab.sim import checks
from pagoda.lab.sim.bad import REMOTE
from pagoda.lab.sim.drive import SLOT_BYTES, Drive, Label
from pagoda.lab.sim.failure import Check, Failure, ensure
from pagoda.lab.sim.memory import DeviceMemory
from pagoda.lab.sim.remote import Remote
from pagoda.lab.sim.requests import Context, Requests
from pagoda.lab.sim.restart import Restart
from pagoda.lab.sim.sampling import PLAN
from pagoda.lab.sim.tier import Flight, SimTier
from pagoda.lab.sim.watch import Watch
from pagoda.lab.sim.world import BLOCK_BYTES, World
from pagoda.store.executor import Runtime
from pagoda.store.scrub import ScrubPlan
from pagoda.store.store import Store, StoreConfig
from pagoda.testing.clock import FakeClock
from pagoda.testing.executor import SteppedExecutor
from pagoda.tiers.sealed import SealedTier

DEVICE_BLOCKS = 24
HOST_SLOTS = 22
DRIVE_SLOTS = (40, 24)
_ENDURANCES = (
    Endurance(),
    Endurance(day_bytes=70 * SLOT_BYTES),
    Endurance(day_bytes=400 * SLOT_BYTES),
    Endurance(day_bytes=400 * SLOT_BYTES, total_bytes=600 * SLOT_BYTES),
)
_QUEUE_BLOCKS = 24


@dataclass(frozen=True, slots=True)
class Policies:
    """Names of what orders the blocks of each kind of tier."""

    device: str
    host: str
    drive: str

    def config(self) -> StoreConfig:
        """A store's configuration with them."""
        return StoreConfig(
            queue_bytes=_QUEUE_BLOCKS * BLOCK_BYTES,
            policy=self.host,
            drive_policy=self.drive,
            scrub=ScrubPlan(rate_bytes_s=4 * SLOT_BYTES, every_s=900.0),
            check=PLAN,
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the nodes of a run share."""

    world: World
    clock: FakeClock
    rng: random.Random
    remote: Remote
    policies: Policies


class StoppedClockExecutor(SteppedExecutor):
    """For an owner that waits: time passes when there is nothing to run."""

    def __init__(self, rng: random.Random, clock: FakeClock) -> None:
        super().__init__(rng)
        self._clock = clock

    def wait(self, timeout_s: float) -> None:
        if not self.step():
            self._clock.advance(timeout_s)


class Node:
    """An engine that lives, dies and comes back over the same drives."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.namespace = 0
        self.flights: list[Flight] = []
        self.calm = False  # no fault will be injected
        self.well = False  # and those of before are over
        self.lives = 0
        self.strike_with: Callable[[], None] = lambda: None
        self._around = around
        self._until_break = 10
        self._striking = False
        self.drives = [self._drive(number) for number in range(len(DRIVE_SLOTS))]
        self.open()

    # A life, and its end.

    def open(self) -> None:
        """Start the process: memory is new, the drives are as they were left."""
        around = self._around
        self.lives += 1
        self.flights.clear()
        self.executor = StoppedClockExecutor(around.rng, around.clock)
        memory = Drive("host", HOST_SLOTS, clock=around.clock, rng=around.rng)
        self.tiers = [SimTier(drive, self) for drive in (memory, *self.drives)]
        ranks = [self.tiers[:1], self.tiers[1:]]
        self.watch = Watch(self)
        self.store = Store(
            [[SealedTier(tier) for tier in rank] for rank in ranks if rank],
            runtime=Runtime(
                executor=self.executor,
                clock=around.clock,
                wall_ms=around.clock.wall_ms,
                observer=self.watch.observe,
            ),
            config=around.policies.config(),
            wears={drive.name: drive.wear() for drive in self.drives},
            cares={drive.name: drive.care() for drive in self.drives},
            shared=around.remote.parts(self, around.clock),
        )
        self.levels = {level.name: level for level in self.store.levels()}
        restart = Restart(self.drives, around.world)
        self.store.rebuild()
        restart.check(self.levels)
        self.memory = DeviceMemory(DEVICE_BLOCKS, policy=around.policies.device)
        context = Context(
            clock=around.clock,
            rng=around.rng,
            flights=self.flights,
            suspects=self.suspects,
        )
        self.requests = Requests(self.store, self.memory, context)

    def kill(self, *, power: bool) -> None:
        """The process ends at once. A power cut also takes what was not synced."""
        for drive in self.drives if power else ():
            drive.medium.cut_power(self._around.rng.random)
            drive.keys.update((label.slot, label.key) for label in drive.labels())
            drive.suspect(drive.medium.doubtful)
        self.open()

    def stop(self) -> None:
        """The process ends in order, and starts again: what it had on drives is there."""
        for request in list(self.requests.running):
            self.requests.end(request)
        closed = self.store.close(flush_s=60.0)
        before = {key for name in self.drive_levels() for key in self._held(name)}
        clean = closed and self.well and not any(drive.scarred for drive in self.drives)
        self.open()
        after = {key for name in self.drive_levels() for key in self._held(name)}
        ensure(not clean or before <= after, Check.RESTART, "an orderly restart lost blocks")

    def replace(self, number: int) -> None:
        """A new drive in the place of one, while the node is down."""
        self.drives[number] = self._drive(number)

    @property
    def policies(self) -> Policies:
        """Of its tiers."""
        return self._around.policies

    def drive_levels(self) -> list[str]:
        """Names of the levels that outlive the process."""
        return [drive.name for drive in self.drives]

    def suspicious(self, *, everywhere: bool) -> bool:
        """Whether a tier, or the shared store as well, may hold a damaged block."""
        damaged = any(tier.drive.damaged for tier in self.tiers)
        return damaged or (everywhere and bool(self._around.remote.suspects))

    def suspects(self, tier: str) -> AbstractSet[Key]:
        """Keys of blocks that a fault may have damaged in a tier."""
        if tier == REMOTE:
            return self._around.remote.suspects
        return next(each for each in self.tiers if each.name == tier).drive.suspects

    # Interrupts of I/O: other things happen in the middle of an operation.

    def due(self) -> bool:
        """Whether this operation is interrupted; only those of I/O threads are."""
        if not self._striking:
            return False
        self._until_break -= 1
        if self._until_break > 0:
            return False
        self._until_break = self._around.rng.randint(2, 30)
        return True

    def strike(self) -> None:
        self.strike_with()

    def committed(self, tier: SimTier, labels: Sequence[Label]) -> None:
        self.requests.bad.stored_anew(tier.name, [label.key for label in labels])

    def stored_shared(self, keys: Sequence[Key]) -> None:
        self.requests.bad.stored_anew(REMOTE, keys)

    def run_io(self) -> bool:
        """Carry out one order as an I/O thread would; False when there is none."""
        before, self._striking = self._striking, True
        try:
            return self.executor.step()
        finally:
            self._striking = before

    # The owner's work.

    def poll(self) -> None:
        """Let the store take in what has ended, and see that no restore is overdue."""
        before, self._striking = self._striking, False
        try:
            self.store.poll()
        finally:
            self._striking = before
        if self.store.quarantine.take_news():
            self.memory.blocks.forget()
        self.requests.look_around()

    def heal(self) -> None:
        """What is outside of this node works again, too."""
        self._around.remote.heal()

    def lift(self) -> None:
        """An operator ends what is in quarantine."""
        for namespace in self.store.quarantine.entries():
            self.store.quarantine.lift(namespace)

    def pin(self) -> None:
        """Pin the beginning of a prompt in every tier, in the place of what was pinned."""
        prompt = self._around.world.ask(self.namespace)
        for level in self.levels.values():
            level.residency.pinned.replace(prompt.keys[: self._around.rng.randint(1, 6)])

    def unpin(self) -> None:
        """Pin nothing."""
        for level in self.levels.values():
            level.residency.pinned.replace(())

    def clear_shared(self) -> None:
        """Clear a namespace of the shared store, for everyone."""
        assert self.store.shared is not None, "every node has the shared store"
        prompt = self._around.world.ask(self.namespace)
        self.store.shared.clear(prompt.namespace)

    def clear(self) -> None:
        """Clear the cache: nothing of it is found from now on."""
        self.memory.blocks.forget()
        gone = {key for name in self.levels for key in self._held(name)}
        gone.update(block.key for block in self.requests.unreleased.values())
        self.store.clear()
        self.requests.cleared = gone
        checks.cleared(self)

    def settle(self, limit: int = 4000) -> None:
        """Without faults, everything under way comes to its end within `limit` turns: a look at a
        drive's health as well, though the store counts as idle beside one. Were it left, the hours
        that pass next would make it late."""
        for _ in range(limit):
            moved = self.run_io()
            self.poll()
            self.requests.advance_all()
            waiting = moved or self.executor.pending()
            if not waiting and self.store.idle and self.requests.idle:
                return
            if not waiting:
                self._around.clock.advance(0.2)
        raise Failure(Check.LIVENESS, f"{self.name} still works after {limit} turns")

    def _held(self, name: str) -> list[Key]:
        return [key for key, _ in self.levels[name].state.published()]

    def _drive(self, number: int) -> Drive:
        return Drive(
            f"drive{number}",
            DRIVE_SLOTS[number],
            clock=self._around.clock,
            rng=self._around.rng,
            endurance=self._around.rng.choice(_ENDURANCES),
        )
