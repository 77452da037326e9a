"""Requests of a simulated engine: lease, restore, compute what is missing, save, let go.

The order of calls is that of `engine.scheduler`; what a model would compute is taken from
the naive model instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pagoda.core.events import Reason
from pagoda.core.identity import Key
from pagoda.core.outcome import Corrupt, Hit, Miss, Outcome, Unavailable
from pagoda.core.policy import Ending, Hint
from pagoda.core.policy import Request as Visit
from pagoda.lab.sim.bad import BadBlocks
from pagoda.lab.sim.failure import Check, Failure, ensure
from pagoda.lab.sim.memory import DIRTY, DeviceMemory
from pagoda.lab.sim.sampling import Sampling
from pagoda.lab.sim.tier import Flight
from pagoda.lab.sim.world import BLOCK_BYTES, BLOCK_TOKENS, Prompt
from pagoda.store.restore import Restore
from pagoda.store.shared import Probe
from pagoda.store.store import Store
from pagoda.store.writer import Block

_ZEROS = bytes(BLOCK_BYTES)
_HINTS = list(Hint)
_POISON = b"\xcc" * BLOCK_BYTES


@dataclass(slots=True, eq=False)
class Request:
    """The first `len(blocks)` blocks of a prompt, in device memory. Blocks before `first`
    were cached there, those from `first` on are being restored, or computed."""

    prompt: Prompt
    blocks: list[int]
    first: int
    visit: Visit  # as policies know it
    withheld: range  # computed though they are there, to be compared
    barred: bool = False  # its namespace was in quarantine when it looked for blocks below
    restore: Restore | None = None
    writes_before: int = 0  # how many blocks had been stored when the restore began


@dataclass(slots=True, eq=False)
class Limbo:
    """A block that a late read may still write to."""

    restore: Restore
    position: int
    block: int
    truth: bytes


@dataclass(slots=True)
class Tally:
    """Blocks that requests asked for, and where they came from."""

    asked: int = 0
    device: int = 0
    restored: int = 0
    refused: int = 0  # Corrupt or Unavailable
    requests: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)

    def count(self, outcome: Outcome) -> None:
        """Take in what became of a block."""
        name = type(outcome).__name__
        self.outcomes[name] = self.outcomes.get(name, 0) + 1
        self.restored += isinstance(outcome, Hit)
        self.refused += not isinstance(outcome, Hit | Miss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What requests live in: time and chance, operations of I/O that are under way, and by
    tier the keys of blocks that a fault may have damaged there."""

    clock: Callable[[], float]
    rng: random.Random
    flights: list[Flight]
    suspects: Callable[[str], AbstractSet[Key]]


class Requests:
    """The requests of one life of a node."""

    def __init__(self, store: Store, memory: DeviceMemory, context: Context) -> None:
        self.running: list[Request] = []
        self.limbo: list[Limbo] = []
        self._asking: list[tuple[Probe, Prompt, int]] = []
        self.unreleased: dict[int, Block] = {}  # saved blocks by id, until they are given back
        self.tally = Tally()
        self.cleared: set[Key] = set()  # keys that must not be found until they are saved again
        self.fresh: set[Key] = set()  # saved, and new to the store, since this was emptied
        self.patient = False  # no client goes away when its cache is slow
        self.bad = BadBlocks(context.clock)
        self.sampling = Sampling(store, memory, context.rng)
        self._store = store
        self._memory = memory
        self._clock = context.clock
        self._rng = context.rng
        self._flights = context.flights
        self._suspects = context.suspects

    @property
    def idle(self) -> bool:
        """No request is under way."""
        return not self.running and not self._asking

    def ask(self, wishes: Sequence[tuple[Prompt, int]]) -> None:
        """Requests arrive: the shared store is asked what it has, before they are admitted."""
        for prompt, blocks in wishes:
            probe = self._store.probe(prompt.namespace, prompt.keys[:blocks])
            self._asking.append((probe, prompt, blocks))

    def advance_all(self) -> None:
        """Every request goes on as far as it can now."""
        ready = [entry for entry in self._asking if entry[0].done]
        self._asking = [entry for entry in self._asking if not entry[0].done]
        if ready:
            self.start([(prompt, blocks) for _, prompt, blocks in ready])
        for request in list(self.running):
            self.advance(request)

    def start(self, wishes: Sequence[tuple[Prompt, int]]) -> None:
        """Admit requests, each for the first so many blocks of a prompt, as far as there is
        memory; what the store holds of them is restored together."""
        restoring: list[tuple[Request, Sequence[Key], list[memoryview]]] = []
        for prompt, blocks in wishes:
            request = self._admit(prompt, blocks)
            if request is None:
                continue
            keys = self._to_restore(request)
            if keys:
                into = request.blocks[request.first : request.first + len(keys)]
                self._memory.lend(into)
                restoring.append((request, keys, [self._memory.views[block] for block in into]))
        restores = self._store.restore_all([(keys, views) for _, keys, views in restoring])
        for (request, _, _), restore in zip(restoring, restores, strict=True):
            request.restore = restore
            request.writes_before = self.bad.writes

    def _admit(self, prompt: Prompt, blocks: int) -> Request | None:
        """Lease what is cached, and reserve the rest; None when there is no memory for it."""
        keys = prompt.keys[:blocks]
        visit = Visit(
            keys=keys,
            at_s=self._clock(),
            tokens=blocks * BLOCK_TOKENS,
            hint=self._rng.choice(_HINTS),
        )
        self._memory.blocks.residency.begin(visit)
        self._store.begin(visit)
        withheld = self.sampling.withhold(keys)
        usable = keys[: withheld.start] if withheld else keys
        cached = self._memory.take_prefix(usable, prompt.truths)
        fresh = self._memory.reserve(blocks - len(cached))
        if fresh is None:
            self._memory.give_back(cached)
            self._over(visit, [], {})
            return None
        self.tally.requests += 1
        self.tally.asked += blocks
        self.tally.device += len(cached)
        request = Request(prompt, cached + fresh, len(cached), visit, withheld)
        self.running.append(request)
        return request

    def _to_restore(self, request: Request) -> Sequence[Key]:
        """What the store says it has, and now and then one block more."""
        end = request.withheld.start if request.withheld else len(request.blocks)
        keys = request.prompt.keys[request.first : end]
        request.barred = self._store.quarantine.bars(request.prompt.namespace)
        lower = self._store.match(keys)
        self.bad.check(keys[:lower], self._held_here)
        for key in keys[:lower]:
            there = self._held_here(key) or self._known_there(key)
            ensure(there, Check.PREFIX, "a look-up counts a block that no tier holds")
        return keys[: lower + (self._rng.random() < 0.2)]

    def advance(self, request: Request) -> None:
        """Compute once the restore is done, then end."""
        restore = request.restore
        if restore is None:
            self._compute(request, request.first)
            self.end(request)
        elif restore.done:
            request.restore = None
            usable = self._take_in(request, restore)
            if usable is None:
                return
            bad = not all(isinstance(outcome, Hit | Miss) for outcome in restore.outcomes)
            if bad and not self.patient and self._rng.random() < 0.5:
                self.end(request)  # the client has gone away; somebody else will ask
            else:
                self._compute(request, usable)

    def look_around(self) -> None:
        """After a poll: no restore is overdue; late reads that have ended give blocks back."""
        now_s = self._clock()
        for request in self.running:
            if request.restore is not None and now_s >= request.restore.deadline_s:
                ensure(
                    request.restore.done, Check.DEADLINE, "a restore is not done at its deadline"
                )
        if self.limbo:
            self._drain()

    def end(self, request: Request) -> None:
        """A request is over, or is cancelled in the middle of its restore."""
        self.running.remove(request)
        self._offer_again(request)
        late: set[int] = set()
        if request.restore is not None:
            late = {request.first + position for position in request.restore.flying()}
            self._set_aside(request, request.restore, late)
        for position, block in enumerate(request.blocks):
            if request.restore is not None and position >= request.first and position not in late:
                self._memory.landed(block)
        self._memory.give_back(
            [block for position, block in enumerate(request.blocks) if position not in late]
        )

    def _drain(self) -> None:
        """Take blocks back from reads that came late."""
        kept: list[Limbo] = []
        for late in self.limbo:
            if late.position in late.restore.flying():
                kept.append(late)
                continue
            content = bytes(self._memory.views[late.block])
            ensure(
                content in {_ZEROS, late.truth},
                Check.BUFFERS,
                "a late read left neither a verified block nor zeros",
            )
            self._memory.landed(late.block)
            self._memory.give_back([late.block])
        self.limbo = kept

    def _take_in(self, request: Request, restore: Restore) -> int | None:
        """Check every outcome, publish the usable prefix; its end, or None when the request
        has to go because late reads hold its memory."""
        first, prompt = request.first, request.prompt
        flying = restore.flying()
        for position, outcome in enumerate(restore.outcomes):
            self.tally.count(outcome)
            handed = isinstance(outcome, Hit) and request.barred
            ensure(not handed, Check.BARRED, "a block of a namespace in quarantine is restored")
            self.bad.remember(
                prompt.keys[first + position],
                outcome,
                writes_before=request.writes_before,
                deadline_s=restore.deadline_s,
            )
            if position not in flying:
                block = request.blocks[first + position]
                self._check(outcome, bytes(self._memory.views[block]), prompt, first + position)
                self._memory.landed(block)
        usable = first + restore.usable_blocks
        for position in range(first, usable):
            self._memory.blocks.publish(
                request.blocks[position], prompt.keys[position], prompt.parent(position)
            )
        late = {first + position for position in flying}
        if not late:
            return usable
        spare = self._memory.reserve(len(late))
        self._set_aside(request, restore, late)
        if spare is None:
            self._memory.give_back([b for i, b in enumerate(request.blocks) if i not in late])
            self.running.remove(request)
            self._over(request.visit, [], {})
            return None
        for position, block in zip(sorted(late), spare, strict=True):
            request.blocks[position] = block
        return usable

    def _set_aside(self, request: Request, restore: Restore, late: set[int]) -> None:
        self.limbo += [
            Limbo(
                restore, position - request.first, request.blocks[position],
                request.prompt.truths[position],
            )
            for position in sorted(late)
        ]  # fmt: skip

    def _check(self, outcome: Outcome, content: bytes, prompt: Prompt, position: int) -> None:
        """The oracle: true bytes of a hit, no byte of anybody's otherwise."""
        where = f"{prompt.name} block {position}"
        match outcome:
            case Hit(tier=tier):
                ensure(
                    content == prompt.truths[position],
                    Check.BYTES,
                    f"{where} from {tier} has wrong bytes",
                )
            case Miss(reason=Reason.ABSENT | Reason.SUSPECT | Reason.QUARANTINED):
                untouched = content in {DIRTY, _ZEROS}  # zeros where the shared store had nothing
                ensure(untouched, Check.BUFFERS, f"{where}: a miss left bytes in its buffer")
            case Unavailable(reason=Reason.TIMEOUT):  # it may have arrived after all, verified
                ensure(
                    content in {_ZEROS, prompt.truths[position]},
                    Check.BUFFERS,
                    f"{where}: a late read left neither a verified block nor zeros",
                )
            case _:
                ensure(content == _ZEROS, Check.BUFFERS, f"{where}: {outcome} left bytes behind")
        if isinstance(outcome, Corrupt) and outcome.reason is not Reason.TRUNCATED:
            damaged = prompt.keys[position] in self._suspects(outcome.tier)
            ensure(damaged, Check.REASON, f"{where}: {outcome}, but nothing damaged it there")

    def _held_here(self, key: Key) -> bool:
        return any(level.state.slot_of(key) is not None for level in self._store.levels())

    def _known_there(self, key: Key) -> bool:
        return self._store.shared is not None and self._store.shared.known_prefix([key]) == 1

    def _compute(self, request: Request, start: int) -> None:
        """Fill the blocks from `start` on, cache them, and save what is new."""
        request.first = len(request.blocks)
        fresh: list[Block] = []
        held: dict[int, int] = {}
        for position in range(start, len(request.blocks)):
            block = request.blocks[position]
            truth = request.prompt.truths[position]
            self._memory.fill(block, truth)
            prompt = request.prompt
            if self._memory.blocks.publish(block, prompt.keys[position], prompt.parent(position)):
                if self._rng.random() < 0.5:  # a saver whose memory is reused at once
                    fresh.append(request.prompt.block(position, memoryview(bytearray(truth))))
                else:
                    self._memory.blocks.hold(block)
                    fresh.append(request.prompt.block(position, self._memory.views[block]))
                    held[id(fresh[-1])] = block
        for position in request.withheld:
            self.sampling.compare(request.prompt, position, calm=self.patient)
        self._store.save(fresh, self._releasing(fresh, held), request.visit)

    def _offer_again(self, request: Request) -> None:
        """What is cached of its chain goes to tiers that lack it."""
        prompt, keys = request.prompt, request.prompt.keys[: request.first]
        again: list[Block] = []
        held: dict[int, int] = {}
        for position, key in enumerate(keys):
            block = self._memory.blocks.state.slot_of(key)
            if block is not None:
                self._memory.blocks.hold(block)
                again.append(prompt.block(position, self._memory.views[block]))
                held[id(again[-1])] = block
        self._over(request.visit, again, held)

    def _over(self, visit: Visit, again: list[Block], held: dict[int, int]) -> None:
        """Every tier hears that a request is over."""
        ending = Ending(keys=visit.keys, at_s=self._clock(), output_tokens=0)
        self._memory.blocks.residency.end(visit, ending)
        self._store.ended(visit, ending, again, self._releasing(again, held))

    def _releasing(self, blocks: list[Block], held: dict[int, int]) -> Callable[[Block], None]:
        """Blocks are about to be saved: what takes each back, once."""
        for saved in blocks:
            self.unreleased[id(saved)] = saved
            self.cleared.discard(saved.key)
            if self._store.levels()[0].state.slot_of(saved.key) is None:
                self.fresh.add(saved.key)

        def release(saved: Block) -> None:
            ensure(
                self.unreleased.pop(id(saved), None) is saved,
                Check.RELEASE,
                "a block was given back twice, or was never taken",
            )
            if id(saved) in held:
                self._memory.give_back([held[id(saved)]])
            else:
                self._overwrite(saved.payload)

        return release

    def _overwrite(self, payload: memoryview) -> None:
        """The saver uses its memory for something else."""
        for flight in self._flights:
            if any(view.obj is payload.obj for view in flight.views):
                raise Failure(Check.RELEASE, "a block was given back while it was being written")
        payload[:] = _POISON
