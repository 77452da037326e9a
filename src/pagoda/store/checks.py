"""The sampled check: stored blocks are held against the same blocks, computed again.

Whoever looks up a prefix asks `allow` how much of it a request may use. One request in many is
told less, and computes the rest as if nobody had it; it hands those blocks to `compare` before
they are stored. Every tier's copy of them, read back through its seal, then has to be what was
computed. The seal finds bytes that changed; this finds sound bytes under a wrong name: those of
another prompt, of other weights or another layout, and copies that a device spoiled.

A block that is wrong puts its namespace into quarantine (`store.quarantine`): where one name
leads to the wrong block, none of that namespace is believed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagoda.core.checking import Form, Sampler, Verdict, difference, judge
from pagoda.core.events import Checked
from pagoda.core.identity import Key
from pagoda.core.outcome import Hit, Outcome
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.block import Block
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.level import Level
from pagoda.store.orders import Due, Orders
from pagoda.store.quarantine import Entry, Quarantine
from pagoda.store.shared import SharedLevel

Read = Callable[[int, memoryview], Outcome]
Release = Callable[[Block], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """Which share of requests with a cached prefix is checked, and how many blocks of each at
    most: the last ones, which depend on all before them. `form` says how blocks are compared;
    `key` is what the choice of requests depends on."""

    rate: float
    most_blocks: int
    form: Form
    key: bytes


@dataclass(slots=True, eq=False)
class _Held:
    """A computed block, whose bytes stay untouched while copies are held against it."""

    block: Block
    release: Release
    copies: int = 0  # still to be compared

    def done(self, copies: int = 1) -> None:
        """Copies were compared, or will not be."""
        self.copies -= copies
        if self.copies == 0:
            self.release(self.block)


@dataclass(slots=True, eq=False)
class _Run:
    """One tier's copies of some blocks, read and compared one by one in an I/O thread."""

    tier: str
    held: list[_Held]
    read: Read
    form: Form
    differences: list[float | None] = field(default_factory=list)  # None: not read
    over: bool = False  # the blocks' bytes may not be looked at any more
    _looking: threading.Lock = field(default_factory=threading.Lock)

    def carry_out(self) -> _Run:
        """In an I/O thread."""
        longest = max(len(one.block.payload) for one in self.held)
        staging = memoryview(aligned_buffer(longest))
        for at, one in enumerate(self.held):
            if self.over:
                break
            stored = staging[: len(one.block.payload)]
            outcome = self.read(at, stored)
            with self._looking:
                if not self.over:
                    self.differences.append(self._difference(outcome, stored, one.block))
        return self

    def end(self) -> None:
        """From now on nobody looks at the blocks' bytes. Waits for one comparison at most."""
        with self._looking:
            self.over = True

    def _difference(self, outcome: Outcome, stored: memoryview, block: Block) -> float | None:
        return difference(stored, block.payload, self.form) if isinstance(outcome, Hit) else None


class Checks:
    """Owner's thread; copies are read and compared in I/O threads."""

    def __init__(
        self,
        levels: Sequence[Level],
        shared: SharedLevel | None,
        quarantine: Quarantine,
        *,
        runtime: Runtime,
        orders: Orders,
    ) -> None:
        self._levels = levels
        self._shared = shared
        self._quarantine = quarantine
        self._runtime = runtime
        self._orders = orders
        self._plan: CheckPlan | None = None
        self._sampler = Sampler(0.0, b"")
        self._held_bytes = self._most_bytes = 0
        self._deadline_s = 0.0

    def start(self, plan: CheckPlan | None, *, most_bytes: int, deadline_s: float) -> None:
        """Check as planned, or not at all. `most_bytes` of computed blocks may wait to be compared,
        each for `deadline_s`: a stuck tier must leave the engine its memory."""
        self._plan = plan
        self._sampler = Sampler(plan.rate, plan.key) if plan else self._sampler
        self._most_bytes, self._deadline_s = most_bytes, deadline_s

    @property
    def active(self) -> bool:
        """Whether any request is checked."""
        return self._sampler.active

    def allow(self, found: int) -> int:
        """How many of the leading blocks that were found for a request it may use. The others are
        to be computed, and compared."""
        if not found or self._plan is None or not self.active or not self._sampler.choose():
            return found
        return max(0, found - self._plan.most_blocks)

    def compare(self, blocks: Sequence[Block], release: Release) -> None:
        """Hold what the tiers have of computed blocks against them. `release` is called for each
        once its bytes are free; they are not stored by this. Comes before they are."""
        held = [self._hold(block, release) for block in blocks]
        runs = [run for level in self._levels if (run := self._level_run(level, held))]
        if self._shared is not None and (beyond := [one for one in held if not one.copies]):
            runs += self._shared_runs(self._shared, beyond)
        for one in held:
            if not one.copies:
                one.copies = 1
                one.done()  # nobody has it
        for send in runs:
            send()

    def hold_against(self, tier: str, block: Block, stored: memoryview) -> None:
        """The same for a copy at hand, here and now."""
        if self._plan is not None:
            form = self._plan.form
            self._account(tier, block, difference(stored, block.payload, form), form)

    # Helpers.

    def _hold(self, block: Block, release: Release) -> _Held:
        self._held_bytes += len(block.payload)

        def free(block: Block) -> None:
            self._held_bytes -= len(block.payload)
            release(block)

        return _Held(block, free)

    def _level_run(self, level: Level, held: Sequence[_Held]) -> Callable[[], None] | None:
        """Lease a level's copies; what sends their comparison, if there are any."""
        if not level.readable(self._runtime.clock()):
            return None
        found = [
            (one, slot) for one in held if (slot := level.state.slot_of(one.block.key)) is not None
        ]
        if not found or self._held_bytes > self._most_bytes:
            return None
        slots = [slot for _, slot in found]
        level.state.lease(slots)
        orders = level.orders(slots, [one.block.key for one, _ in found])

        def read(at: int, into: memoryview) -> Outcome:
            return level.sealed.load([orders[at]], [into])[0]

        run = self._run(level.name, [one for one, _ in found], read)
        return lambda: self._send(run, lambda: level.state.release(slots))

    def _shared_runs(self, shared: SharedLevel, held: Sequence[_Held]) -> list[Callable[[], None]]:
        """The same for the blocks that only the shared store should have."""
        found = [one for one in held if shared.known_prefix([one.block.key])]
        if not found or self._held_bytes > self._most_bytes:
            return []
        keys: list[Key] = [one.block.key for one in found]
        names = [one.block.namespace for one in found]

        def read(at: int, into: memoryview) -> Outcome:
            return shared.read(names[at], keys[at], into)

        run = self._run(shared.name, found, read)
        return [lambda: self._send(run, lambda: None)]

    def _run(self, tier: str, held: list[_Held], read: Read) -> _Run:
        assert self._plan is not None, "only what is planned is compared"
        for one in held:
            one.copies += 1
        return _Run(tier, held, read, self._plan.form)

    def _send(self, run: _Run, then: Callable[[], object]) -> None:
        def late() -> None:
            run.end()
            self._free(run)

        def landed(run: _Run) -> None:
            then()
            for one, found in zip(run.held, run.differences, strict=False):
                self._account(run.tier, one.block, found, run.form)
            if not run.over:
                self._free(run)

        self._orders.send(
            Lane(run.tier, Kind.SCRUB),
            run.carry_out,
            landed,
            due=Due(until_s=self._runtime.clock() + self._deadline_s, late=late),
        )

    def _free(self, run: _Run) -> None:
        for one in run.held:
            one.done()

    def _account(self, tier: str, block: Block, found: float | None, form: Form) -> None:
        verdict = Verdict.UNREAD if found is None else judge(found, form)
        self._runtime.observer(Checked(tier=tier, verdict=verdict, difference=found))
        if verdict is Verdict.WRONG:
            detail = f"a block in {tier} is not what is computed: they differ by {found:.2g}, "
            detail += f"where {form.tolerance:g} is the most"
            now_s = self._runtime.wall_ms() // 1000
            self._quarantine.add(block.namespace, Entry(now_s, detail))
            if self._shared is not None:
                self._shared.bar(block.namespace)
