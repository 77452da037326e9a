"""A run: seeded small steps, storms of faults and calm weather, and checks all along.

In a storm anything may happen, also in the middle of an I/O operation. In the calm after
it faults are cleared and all work ends; then what is stored must be found again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from xxhash import xxh3_64

from pagoda.lab.sim import checks
from pagoda.lab.sim.calm import Calm
from pagoda.lab.sim.failure import Failure, Killed, findings
from pagoda.lab.sim.faults import FAULTS
from pagoda.lab.sim.node import Node, Policies, Surroundings
from pagoda.lab.sim.remote import Remote
from pagoda.lab.sim.world import World
from pagoda.store.health import SPACE_EVERY_S
from pagoda.testing.clock import FakeClock

_RUNNING = 6  # requests of a node at a time
_DEPTH = 2  # operations that may be interrupted within one another
_STORM = (150, 900)  # steps
_CHECK_EVERY = 40  # steps between two checks of a node's sums
_CHORES = 6  # orders that run in half a minute of rest
_LAST = 30  # steps that a failure shows

_WEIGHTS = {
    "io": 34,
    "poll": 16,
    "request": 12,
    "advance": 20,
    "time": 6,
    "cancel": 1,
    "fault": 3,
    "lie": 2,
    "hold": 1,
    "unhold": 3,
    "pin": 1,
    "unpin": 1,
}
# By seed, so that any four in a row have all.
_POLICIES = (
    Policies(device="heat", host="heat", drive="lru"),  # as a server has them
    Policies(device="lru", host="lru", drive="lru"),
    Policies(device="heat", host="heat", drive="heat"),
    Policies(device="lru", host="heat", drive="lru"),
)
_CALM = ("io", "poll", "advance")  # of what may happen meanwhile, when no fault does
_RARE = {
    "clear": 16,
    "clear-shared": 3,
    "kill": 6,
    "power": 4,
    "replace": 1,
    "absent": 2,
    "namespace": 20,
    "jump": 3,
    "minutes": 4,
    "lift": 8,
}


@dataclass(slots=True)
class Report:
    """What a run saw. `failed` is None for a clean one; `digest` stands for the whole trace."""

    seed: int
    steps: int = 0
    digest: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    failed: str | None = None
    detail: str = ""
    last: list[str] = field(default_factory=list)


class Simulation:
    """Two nodes under one seed."""

    def __init__(self, seed: int, *, nodes: int = 2) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - a simulation, no secret
        self.clock = FakeClock()
        world = World(self.rng)
        self._remote = Remote(self.rng)
        policies = _POLICIES[seed % len(_POLICIES)]
        around = Surroundings(world, self.clock, self.rng, self._remote, policies)
        self.nodes = [Node(f"node{number}", around) for number in range(nodes)]
        self.steps = 0
        self.report = Report(seed)
        self._world = world
        self._trace: deque[str] = deque(maxlen=_LAST)
        self._hash = xxh3_64()
        self._depth = 0
        self._faults = list(FAULTS)
        self._actions: dict[str, Callable[[Node], object]] = {
            "io": self._io,
            "poll": Node.poll,
            "request": self._request,
            "advance": self._advance,
            "time": self._time,
            "cancel": self._cancel,
            "fault": self._fault,
            "lie": self._lie,
            "clear-shared": Node.clear_shared,
            "hold": lambda node: node.executor.hold(),
            "unhold": lambda node: node.executor.unhold(),
            "clear": Node.clear,
            "kill": lambda node: self._kill(node, power=False),
            "power": lambda node: self._kill(node, power=True),
            "replace": self._replace,
            "absent": self._absent,
            "namespace": self._namespace,
            "jump": self._jump,
            "minutes": self._minutes,
            "pin": Node.pin,
            "unpin": Node.unpin,
            "lift": Node.lift,
        }
        self._common = [name for name, weight in _WEIGHTS.items() for _ in range(weight)]
        self._rare = [name for name, weight in _RARE.items() for _ in range(weight)]
        self._calm = Calm(world, self.rng, self.clock, self.step_done)
        for node in self.nodes:
            node.strike_with = lambda node=node: self._strike(node)  # type: ignore[misc]

    def run(self, steps: int) -> Report:
        """Up to about `steps` steps, or to the first check that fails."""
        while self.steps < steps and self.report.failed is None:
            self.stretch(steps)
        return self.finish()

    def stretch(self, steps: int) -> None:
        """One storm, `steps` being the end of the run, and the calm after it."""
        try:
            with findings():
                self._storm(min(self.steps + self.rng.randint(*_STORM), steps))
                for node in self.nodes:
                    self._calm.weather(node)
        except Failure as failure:
            self.report.failed = failure.check.value
            self.report.detail = failure.detail
            self.report.last = list(self._trace)

    def finish(self) -> Report:
        """Sum up; nothing runs after it."""
        for node in self.nodes:
            self._count(node)
            self.report.counts["lives"] = self.report.counts.get("lives", 0) + node.lives
        self._hash.update(repr(sorted(self.report.counts.items())).encode())
        self.report.steps = self.steps
        self.report.digest = self._hash.hexdigest()
        return self.report

    def step_done(self, node: Node, what: str) -> None:
        """One step more, for the trace."""
        self.steps += 1
        line = f"{self.steps} {node.name} {what}"
        self._trace.append(line)
        self._hash.update(line.encode())

    # A storm.

    def _storm(self, until: int) -> None:
        rng, nodes = self.rng, self.nodes
        self._faults = rng.sample(list(FAULTS), rng.choice([1, 1, 2, 3, len(FAULTS)]))
        while self.steps < until:
            node = nodes[0] if rng.random() < 0.6 else nodes[-1]
            if rng.random() < 0.006:
                self._do(node, rng.choice(self._rare))
            else:
                self._do(node, self._common[int(rng.random() * len(self._common))])
            if self.steps % _CHECK_EVERY == 0:
                checks.invariants(node)

    def _do(self, node: Node, name: str) -> None:
        self.step_done(node, name)
        try:
            self._actions[name](node)
        except Killed:
            self._restart(node, power=self.rng.random() < 0.5)

    def _strike(self, node: Node) -> None:
        """In the middle of a node's I/O, its owner goes on, or its process ends."""
        if self._depth >= _DEPTH:
            return
        self._depth += 1
        try:
            with findings():
                self._meanwhile(node)
        finally:
            self._depth -= 1

    def _meanwhile(self, node: Node) -> None:
        names = _CALM if node.calm else self._common
        for _ in range(self.rng.randint(1, 4)):
            if not node.calm and self.rng.random() < 0.01:
                self.step_done(node, "killed in the middle")
                raise Killed
            name = names[int(self.rng.random() * len(names))]
            self.step_done(node, f"meanwhile {name}")
            self._actions[name](node)

    # What may happen.

    def _io(self, node: Node) -> None:
        node.run_io()
        if self.rng.random() < 0.5:
            node.poll()

    def _request(self, node: Node) -> None:
        """A request arrives, or several at once."""
        rng = self.rng
        wishes = []
        for _ in range(min(rng.choice((1, 1, 2, 3)), _RUNNING - len(node.requests.running))):
            prompt = self._world.ask(
                node.namespace if rng.random() < 0.8 else self._world.namespace()
            )
            wishes.append((prompt, rng.randint(1, len(prompt.keys))))
        node.requests.ask(wishes)

    def _advance(self, node: Node) -> None:
        node.poll()
        node.requests.advance_all()

    def _time(self, node: Node) -> None:
        self.clock.advance(self.rng.choice((0.01, 0.1, 0.5, 1.0, 3.0)))
        node.poll()

    def _cancel(self, node: Node) -> None:
        if node.requests.running:
            node.requests.end(self.rng.choice(node.requests.running))

    def _fault(self, node: Node) -> None:
        tier = self.rng.choice(node.tiers)
        if self.rng.random() < 0.5:
            tier.faults.clear()
            tier.drive.cure()
        else:
            name = self.rng.choice(self._faults)
            self._hash.update(name.encode())
            FAULTS[name](tier, self.rng)

    def _lie(self, node: Node) -> None:
        """The shared store lies to everyone, or has stopped to."""
        del node
        if self.rng.random() < 0.5:
            self._remote.heal()
        else:
            self._remote.lie()

    def _kill(self, node: Node, *, power: bool) -> None:
        if self._depth:
            raise Killed
        self._restart(node, power=power)

    def _restart(self, node: Node, *, power: bool) -> None:
        self._count(node)
        node.kill(power=power)

    def _replace(self, node: Node) -> None:
        if not self._depth:
            node.replace(self.rng.randrange(len(node.drives)))
            self._restart(node, power=False)

    def _absent(self, node: Node) -> None:
        """The node comes back without one of its drives, and nobody asks at first."""
        if not self._depth:
            node.drives[-1].comes_up = False
            self._restart(node, power=False)
            self._minutes(node)

    def _namespace(self, node: Node) -> None:
        node.namespace = self._world.namespace()

    def _jump(self, node: Node) -> None:
        """Hours pass, for everyone; a node sleeps as a suspended machine does."""
        node.poll()
        self.clock.advance(3600.0 * self.rng.randint(1, 10))
        self.clock.shift_wall_s(self.rng.uniform(-1e5, 1e5))

    def _minutes(self, node: Node) -> None:
        """Minutes pass in which nobody asks for anything: looks at drives, trials, scrubbing."""
        for _ in range(self.rng.randint(0, 15)):
            self.clock.advance(SPACE_EVERY_S)
            node.poll()
            for _ in range(_CHORES):
                node.run_io()
            node.poll()

    # The report.

    def _count(self, node: Node) -> None:
        counts = self.report.counts
        tally = node.requests.tally
        for name, count in (
            ("requests", tally.requests),
            ("blocks asked for", tally.asked),
            ("blocks found in device memory", tally.device),
            ("blocks restored", tally.restored),
            ("blocks refused", tally.refused),
            *((f"events {kind}", count) for kind, count in node.watch.told.items()),
        ):
            counts[name] = counts.get(name, 0) + count
