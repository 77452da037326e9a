"""Storing in the background: from device blocks to the first rank, and from rank to rank.

Each rank has a queue. A run of about 4 MiB goes to the member that is best off (core.placement),
one run a member at a time, so that a stuck drive holds up what it has and no more. Blocks that
the rank already holds are not written again, and what its gate does not let through goes on to
the next one. What a rank has committed is queued for the next one and
read back through its seal into staging memory, so a bad byte does not travel down. Staging
belongs to one member each; loads have the memory of their callers, so neither starves the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pagoda.core.admission import Verdict
from pagoda.core.errors import TierError
from pagoda.core.events import Reason, Skipped, Stored
from pagoda.core.identity import Key
from pagoda.core.policy import Ending, Request
from pagoda.store.block import Block
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.gate import Gate
from pagoda.store.level import Level
from pagoda.store.orders import Due, Orders
from pagoda.store.quarantine import Bars
from pagoda.store.queue import Pending, QueueLimits, Source, WriteQueue
from pagoda.store.rank import Rank
from pagoda.store.visits import Visits
from pagoda.store.wear import Job, Then
from pagoda.store.write import Write, loads_of, staging_of
from pagoda.tiers.sealed import reason_of

# A rank that cannot take a block leaves it to the next one: a worn drive ends no sharing.
_NOT_THE_BLOCKS_FAULT = frozenset(
    {Reason.FULL, Reason.IO_ERROR, Reason.READ_ONLY, Reason.UNHEALTHY, Reason.WORN}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What else the store does about a run: take published blocks back, with their headers,
    hear which keys' blocks were written anew, say which namespaces nothing is written of, and
    take what comes behind the last rank."""

    withdraw: Callable[[Level, list[int]], None]
    stored: Callable[[Sequence[Key]], None]
    bars: Bars
    beyond: Callable[[Sequence[Pending]], None] | None = None


class Writer:
    """The write half of a store. All methods run in the owner's thread, jobs in I/O threads."""

    def __init__(
        self,
        gates: Sequence[Gate],
        *,
        runtime: Runtime,
        orders: Orders,
        limits: QueueLimits,
        hooks: Hooks,
    ) -> None:
        self._gates = gates
        self._ranks = ranks = [gate.rank for gate in gates]
        self._orders = orders
        self._hooks = hooks
        self._epoch = 0  # raised by `cancel`
        self._clock = runtime.clock
        self._wall_ms = runtime.wall_ms
        self._observer = runtime.observer
        self._wait_s = limits.wait_s
        self._queues = [WriteQueue(limits.size_bytes) for _ in ranks]
        self.visits = Visits(ranks, self._queues, wait_s=limits.wait_s)
        self._flying: dict[Level, Write] = {}
        self._staging = {level: staging_of(level) for rank in ranks[1:] for level in rank.levels}

    @property
    def idle(self) -> bool:
        return not any(self._queues) and not self._flying

    @property
    def cancelling(self) -> bool:
        """Whether a run that `cancel` found under way still is."""
        return any(write.epoch != self._epoch for write in self._flying.values())

    def add(
        self,
        blocks: Sequence[Block],
        release: Callable[[Block], object],
        request: Request | None = None,
    ) -> None:
        """Queue a request's blocks for the first rank; `release` is called once their bytes are
        free."""
        due_s, now_ms = self._due_s(), self._wall_ms()
        self._pass(
            0,
            [
                Pending(block.born(now_ms), partial(release, block), due_s, request=request)
                for block in blocks
            ],
        )
        self.pump()

    def ended(self, request: Request, ending: Ending) -> None:
        """A request is over. Its blocks are offered after this."""
        for gate in self._gates:
            gate.end(ending)
        self.visits.end(request, ending, self._clock())

    def pump(self) -> None:
        """Start what can be started: one run at a time for each level."""
        for position in range(len(self._ranks)):
            self._fill(position)

    def expire(self) -> None:
        """Drop what has waited too long, as it does when every member is stuck."""
        now_s = self._clock()
        for position, queue in enumerate(self._queues):
            for item in queue.overdue(now_s):
                self._give_up(position, item, Reason.TIMEOUT)

    def cancel(self) -> None:
        """Forget what is queued; what is in flight will not be published."""
        self._epoch += 1
        for position in range(len(self._ranks)):
            self._skip_all(position, Reason.CLOSED)

    def _pass(self, position: int, items: Sequence[Pending]) -> None:
        """Offer blocks to the rank at a position, or to what is behind the last one. Those of a
        namespace in quarantine go nowhere."""
        barred = [item for item in items if self._hooks.bars(item.block.namespace)]
        if barred:
            self._refuse(position, barred)
            items = [item for item in items if not self._hooks.bars(item.block.namespace)]
        if position < len(self._ranks):
            self._offer(position, self._absent(position, items))
        elif self._hooks.beyond is not None:
            self._hooks.beyond(items)
        else:
            for item in items:
                item.release()

    def _refuse(self, position: int, items: Sequence[Pending]) -> None:
        tier = self._ranks[min(position, len(self._ranks) - 1)].name if self._ranks else "remote"
        self._observer(Skipped(tier=tier, blocks=len(items), reason=Reason.QUARANTINED))
        for item in items:
            item.release()

    def _absent(self, position: int, items: Sequence[Pending]) -> list[Pending]:
        """What a rank lacks. What it holds is not written again: it is offered to the next rank
        from here, which may lack it."""
        absent: list[Pending] = []
        held: list[Pending] = []
        sources = self._ranks[position].use([item.block.key for item in items], self._clock())
        for item, source in zip(items, sources, strict=True):
            if source is not None:
                self.visits.keep(item.request, position, source)
            if source is not None and position + 1 < len(self._ranks):
                held.append(self._copied(source, item))
            elif source is not None or item.block.key in self._queues[position]:
                item.release()
            else:
                absent.append(item)
        if held:
            self._pass(position + 1, held)
        return absent

    def _copied(self, source: Source, item: Pending) -> Pending:
        """The block as a level holds it, which is as old as that copy."""
        item.release()
        source.level.state.lease([source.slot])
        created_s = int(source.level.sealed.seals.created_s[source.slot])
        return Pending(
            replace(item.block, created_ms=created_s * 1000),
            partial(source.level.state.release, [source.slot]),
            self._due_s(),
            source,
            item.request,
        )

    def _offer(self, position: int, items: Sequence[Pending]) -> None:
        """Queue what is worth a write; the next rank may think otherwise of the rest."""
        queue, rank = self._queues[position], self._ranks[position]
        blocks = [item.block for item in items]
        verdicts = self._gates[position].judge(blocks, queue, self._clock())
        spared: list[Pending] = []
        for item, verdict in zip(items, verdicts, strict=True):
            if verdict is not Verdict.WRITE:
                spared.append(item)
            elif item.block.key in queue:  # it is there twice
                item.release()
            elif not queue.add(item):
                self._observer(Skipped(tier=rank.name, blocks=1, reason=Reason.BUSY))
                item.release()
        if spared:
            self._pass(position + 1, spared)

    def _fill(self, position: int) -> None:
        """Give runs to members until nothing waits or nobody can take one."""
        rank, queue = self._ranks[position], self._queues[position]
        packed: list[Level] = []  # those whose every slot is leased
        while queue:
            now_s = self._clock()
            for member in rank.levels:
                self._top_up(member, now_s)
            level = rank.place(now_s, barred=[*self._flying, *packed])
            if level is not None:
                if not self._start(position, level):
                    packed.append(level)
                continue
            reason = self._refusal(rank, packed, now_s)
            if reason is not None:
                self._skip_all(position, reason)
            return

    def _refusal(self, rank: Rank, packed: Sequence[Level], now_s: float) -> Reason | None:
        """Why nothing can be written to a rank; None when it is worth waiting."""
        able = [level for level in rank.levels if level.writable(now_s)]
        if not able:
            return rank.levels[0].trust.refusal()
        if any(level in self._flying or level.wear.budget.granting for level in able):
            return None
        return Reason.FULL if packed else Reason.WORN

    def _top_up(self, level: Level, now_s: float) -> None:
        def send(job: Job, then: Then) -> None:
            self._orders.send(Lane(level.name, Kind.STORE), job, then, due=self._due(level))

        def topped_up(error: TierError | None) -> None:
            if error is not None:
                level.write_failed(error, self._clock())
            self.pump()

        level.wear.top_up(send, now_s=now_s, now_ms=self._wall_ms(), then=topped_up)

    def _start(self, position: int, level: Level) -> bool:
        """Send a run; False when the level has no slot to give."""
        queue = self._queues[position]
        affordable = level.wear.budget.usable_bytes // level.sealed.geometry.slot_bytes
        slots = level.reserve(min(level.run_blocks, len(queue), affordable))
        if not slots:
            return False
        items = queue.take(len(slots))
        seals = [
            item.block.seal(generation=level.state.generation(slot))
            for item, slot in zip(items, slots, strict=True)
        ]
        loads = loads_of(items)
        staging = self._staging.get(level)
        write = Write(position, level, items, slots, seals, self._epoch, loads, staging)
        self._flying[level] = write
        level.wear.budget.spend(write.size_bytes)
        level.traffic.flying_bytes += write.size_bytes
        self._orders.send(
            Lane(level.name, Kind.STORE),
            lambda: write.carry_out(self._clock),
            self._landed,
            reads=tuple(source.name for source, _, _ in loads),
            due=self._due(level),
        )
        return True

    def _landed(self, write: Write) -> None:
        """A run ended: publish it and hand it on to the next rank, or give it up."""
        level = write.level
        del self._flying[level]
        level.traffic.flying_bytes -= write.size_bytes
        if write.error is not None:
            level.write_failed(write.error, self._clock())
            level.state.abandon(write.slots)
            cleared = write.epoch != self._epoch  # since it was sent: it must not go elsewhere
            for item in write.items:
                self._give_up(
                    write.rank, item, Reason.CLOSED if cleared else reason_of(write.error)
                )
        else:
            level.trust.write_succeeded()
            level.traffic.measured(write.size_bytes, write.seconds)
            self._publish(write)
        self.pump()

    def _publish(self, write: Write) -> None:
        level, kept = write.level, write.kept
        slots = [write.slots[i] for i in kept]
        keys = [write.items[i].block.key for i in kept]
        parents = [write.items[i].block.parent for i in kept]
        published = level.residency.publish(slots, keys, parents)
        self._hooks.stored(keys)
        self._observer(
            Stored(
                tier=level.name,
                blocks=len(published),
                size_bytes=sum(len(write.items[i].block.payload) for i in kept),
                seconds=write.seconds,
            )
        )
        done = set(published)
        level.state.abandon([slot for slot in write.slots if slot not in done])
        for other in self._ranks[write.rank].others(level):
            doubles = [s for key in keys if (s := other.state.slot_of(key)) is not None]
            self._hooks.withdraw(other, doubles)
        if write.epoch != self._epoch:
            self._hooks.withdraw(level, published)
        self._hand_on(write, done)

    def _hand_on(self, write: Write, published: set[int]) -> None:
        """Give the source's bytes back, and pass on what was published."""
        level = write.level
        passed: list[Pending] = []
        for item, slot in zip(write.items, write.slots, strict=True):
            self._queues[write.rank].ended(item.block.key)
            item.release()
            if slot not in published:
                continue
            release = partial(level.state.release, [slot])
            if write.epoch == self._epoch:
                source = Source(level, slot)
                self.visits.keep(item.request, write.rank, source)
                passed.append(Pending(item.block, release, self._due_s(), source, item.request))
            else:
                release()
        self._pass(write.rank + 1, passed)

    def _skip_all(self, position: int, reason: Reason) -> None:
        for item in self._queues[position].take(len(self._queues[position])):
            self._give_up(position, item, reason)

    def _give_up(self, position: int, item: Pending, reason: Reason) -> None:
        self._queues[position].ended(item.block.key)
        self._observer(Skipped(tier=self._ranks[position].name, blocks=1, reason=reason))
        if reason in _NOT_THE_BLOCKS_FAULT:
            self._pass(position + 1, [item])
        else:
            item.release()

    def _due_s(self) -> float:
        return self._clock() + self._wait_s

    def _due(self, level: Level) -> Due:
        return Due(until_s=self._due_s(), late=lambda: level.write_late(self._clock()))


__all__ = ["Block", "Hooks", "Writer"]
