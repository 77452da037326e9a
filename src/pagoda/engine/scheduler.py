"""Which sequences run, on which blocks: admission, restores, chunks, preemption.

One thread owns a scheduler. It reads no clock and computes nothing; `engine.llm` drives
it. A sequence is admitted in order of arrival, with blocks for all of its tokens so far:
cached blocks are leased, lower tiers fill others, the rest is computed in chunks that end
on multiples of 64 positions. When decoding finds no free block, the youngest sequence gives
its blocks back and waits again; its full blocks have gone to the tiers, so it is restored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pagoda.core.decide import reusable_blocks
from pagoda.core.events import Looked, Observer, Preempted
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.policy import Ending
from pagoda.core.policy import Request as Visit
from pagoda.engine.batch import Segment
from pagoda.engine.device import TIER, Birth, DeviceBlocks
from pagoda.engine.sequence import Phase, Sequence
from pagoda.store.restore import Restore
from pagoda.store.store import Store
from pagoda.store.writer import Block

CHUNK_MULTIPLE = 64  # a chunk ends on a multiple of this, so that kernels see the same tiles
TAIL_TOKENS = 16  # at least this many tokens are computed, whatever is cached


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much runs at a time. `patience_s` is how long the first request may wait for blocks
    that no running request holds; longer than the store's deadline for waiting writes."""

    max_sequences: int = 32
    chunk_tokens: int = 512
    patience_s: float = 60.0


class Scheduler:
    """Sequences, device blocks and the store, moved from step to step."""

    def __init__(
        self, device: DeviceBlocks, store: Store, *, limits: Limits, observer: Observer
    ) -> None:
        self._device = device
        self._store = store
        self._limits = limits
        self._observer = observer
        self.waiting: deque[Sequence] = deque()
        self.active: list[Sequence] = []  # restoring or running, in order of admission
        self._limbo: list[tuple[Restore, list[int]]] = []  # blocks a late read may write to
        self._starving_s: float | None = None  # since when only I/O holds what the first lacks

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.active

    def add(self, sequence: Sequence) -> None:
        """Queue a request, and ask the shared store what it has of its prompt meanwhile."""
        keys = self._reusable_keys(sequence)
        held = len(self._device.state.prefix(keys))
        sequence.probe = self._store.probe(sequence.namespace, keys[held:])
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence, now_s: float) -> None:
        """Take a sequence out, whatever it is doing, and let go of its blocks."""
        if sequence.phase is Phase.WAITING:
            self.waiting.remove(sequence)
        else:
            self.active.remove(sequence)
        if sequence.visit is not None:
            self._end(sequence, sequence.visit, sequence.ending(now_s))
        self._let_go(sequence)
        sequence.phase = Phase.FINISHED

    def advance(self, now_s: float) -> None:
        """Take in finished restores, then admit what fits."""
        self._drain_limbo()
        for namespace in self._store.quarantine.take_news():
            self._distrust(namespace)
        for sequence in list(self.active):
            if sequence.restore is not None and sequence.restore.done:
                self._finish_restore(sequence)
        while self.waiting and len(self.active) < self._limits.max_sequences:
            if not self._admit(self.waiting[0]):
                break
            admitted = self.waiting.popleft()
            admitted.admitted_s = admitted.admitted_s or now_s
            self.active.append(admitted)
        if self.active or not self.waiting:
            self._starving_s = None
        elif self._starving_s is None:
            self._starving_s = now_s

    def starved(self, now_s: float) -> Sequence | None:
        """The first request, when it has waited too long for blocks that stuck I/O holds."""
        if self._starving_s is None or now_s - self._starving_s < self._limits.patience_s:
            return None
        return self.waiting[0]

    def plan(self) -> list[tuple[Sequence, Segment]]:
        """The segments of the next step: every decoding sequence, then chunks of prompts."""
        chosen: list[tuple[Sequence, Segment]] = []
        for sequence in list(self._running()):
            if sequence.pending == 1 and self._ensure_block(sequence):
                chosen.append((sequence, self._segment(sequence, 1)))
        chosen = [(s, segment) for s, segment in chosen if s.phase is Phase.RUNNING]
        budget = self._limits.chunk_tokens
        for sequence in list(self._running()):
            size = self._chunk(sequence, budget)
            if sequence.pending > 1 and size:
                chosen.append((sequence, self._segment(sequence, size)))
                budget -= size
        return chosen

    def computed(self, sequence: Sequence, tokens: int) -> None:
        """KV of `tokens` more tokens is in place: full blocks go to the caches."""
        sequence.computed += tokens
        full = sequence.computed // sequence.block_tokens
        keys = sequence.keys_to(full)
        fresh: list[Block] = []
        blocks: dict[bytes, int] = {}
        for position in range(sequence.published, full):
            block = sequence.blocks[position]
            birth = self._birth(sequence, position)
            if self._device.publish(block, keys[position], birth.parent, birth):
                self._device.hold(block)
                blocks[keys[position]] = block
                fresh.append(self._as_block(sequence, position))
        checked = sequence.checked or ()
        for position in range(sequence.published, full):
            if position in checked:
                self._compare(sequence, position)
        sequence.published = full
        self._store.save(
            fresh, lambda saved: self._device.give_back([blocks[saved.key]]), sequence.visit
        )

    def _compare(self, sequence: Sequence, position: int) -> None:
        """A block was computed though it was there: what the caches have has to be that."""
        key, mine = sequence.keys[position], sequence.blocks[position]
        cached = self._device.state.slot_of(key)
        assert cached is not None, "a full block is cached, this one or another"
        block = self._as_block(sequence, position)
        if cached != mine:
            self._store.checks.hold_against(TIER, block, self._device.view(cached))
        self._device.hold(cached)
        self._store.checks.compare(
            [replace(block, payload=self._device.view(cached))],
            lambda _: self._device.give_back([cached]),
        )

    def _distrust(self, namespace: NamespaceId) -> None:
        """A block of a namespace was wrong: nothing of it is cached any more, and its requests
        compute anew what they may have had from there, and go on."""
        self._device.distrust(namespace)
        for sequence in reversed([one for one in self.active if one.namespace == namespace]):
            self._requeue(sequence)

    def _end(self, sequence: Sequence, visit: Visit, ending: Ending) -> None:
        """A request is over, for every tier. What is cached of its chain is offered to those
        that lack it, so that what was restored comes up into memory, and what was not worth a
        write may be now. What was cleared meanwhile stays gone."""
        keys = sequence.keys[: sequence.published]
        again: list[Block] = []
        blocks: dict[bytes, int] = {}
        for position, key in enumerate(keys):
            block = self._device.state.slot_of(key)
            if block is not None:
                self._device.hold(block)
                blocks[key] = block
                again.append(self._again(sequence, position, block))
        self._device.residency.end(visit, ending)
        self._store.ended(
            visit, ending, again, lambda saved: self._device.give_back([blocks[saved.key]])
        )

    def check_invariants(self) -> None:
        """Device and store add up, and know of the requests that are not over; an idle engine
        holds no lease."""
        self._device.residency.check_invariants()
        self._store.check_invariants()
        begun = sum(s.visit is not None for s in (*self.waiting, *self.active))
        found = self._device.residency.open_requests
        assert found == begun, f"device: {found} requests are open, of {begun} that began"
        ended = self._store.open_requests - begun
        assert ended >= 0, "the store lost a request that is not over"
        assert ended == 0 or not self._store.idle, f"{ended} requests never end for the store"
        if self.idle and self._store.idle and not self._limbo:
            leases = self._device.state.lease_count()
            assert leases == 0, f"device: {leases} leases are left with no request running"

    def _running(self) -> Iterator[Sequence]:
        return (s for s in self.active if s.phase is Phase.RUNNING)

    def _admit(self, sequence: Sequence) -> bool:
        """Lease, restore and reserve all that a sequence needs now; False if it does not fit, or
        does not know yet what it can restore."""
        if sequence.probe is not None and not sequence.probe.done:
            return False
        if sequence.visit is None:
            visit = sequence.begin()
            self._device.residency.begin(visit)
            self._store.begin(visit)
        keys = self._reusable_keys(sequence)
        usable = keys[: self._usable(sequence, keys)]
        leased = self._device.take_prefix(usable)
        lower = self._store.match(usable[len(leased) :])
        missing = sequence.blocks_for(len(sequence.tokens) + 1) - len(leased)
        reserved = self._device.reserve(missing)
        if reserved is None:
            self._device.give_back(leased)
            return False
        sequence.blocks = leased + reserved
        sequence.computed = len(leased) * sequence.block_tokens
        sequence.published = len(leased)
        self._observer(
            Looked(device=len(leased), lower=lower, absent=len(keys) - len(leased) - lower)
        )
        sequence.admissions += 1
        if sequence.admissions == 1:
            sequence.cached_device = sequence.computed
        self._begin(sequence, lower)
        return True

    def _usable(self, sequence: Sequence, keys: list[Key]) -> int:
        """How many leading blocks may be reused: all, or fewer when the request was chosen to
        check what is there. It is asked about once."""
        if not self._store.checks.active:
            return len(keys)
        if sequence.checked is None:
            found = len(self._device.state.prefix(keys))
            found += self._store.match(keys[found:])
            sequence.checked = range(self._store.checks.allow(found), found)
        return sequence.checked.start if sequence.checked else len(keys)

    def _reusable_keys(self, sequence: Sequence) -> list[Key]:
        reusable = reusable_blocks(
            len(sequence.tokens), block_tokens=sequence.block_tokens, tail_tokens=TAIL_TOKENS
        )
        return sequence.keys_to(reusable)

    def _begin(self, sequence: Sequence, lower: int) -> None:
        """Compute at once, or restore `lower` blocks first."""
        first = sequence.published
        if lower == 0:
            sequence.phase = Phase.RUNNING
            return
        views = [self._device.view(block) for block in sequence.blocks[first : first + lower]]
        keys = sequence.keys[first : first + lower]
        sequence.restore_created_s = [self._store.created_s(key) for key in keys]
        sequence.restore = self._store.restore(keys, views)
        sequence.restore_first = first
        sequence.phase = Phase.RESTORING

    def _finish_restore(self, sequence: Sequence) -> None:
        """Publish the verified prefix; blocks that a late read still holds are exchanged."""
        restore, first = sequence.restore, sequence.restore_first
        assert restore is not None, "only a restoring sequence finishes a restore"
        sequence.restore = None
        for position in range(first, first + restore.usable_blocks):
            birth = self._birth(sequence, position, sequence.restore_created_s[position - first])
            self._device.publish(
                sequence.blocks[position], sequence.keys[position], birth.parent, birth
            )
        sequence.published = first + restore.usable_blocks
        sequence.computed = sequence.published * sequence.block_tokens
        if sequence.admissions == 1:
            sequence.cached_restored = restore.usable_blocks * sequence.block_tokens
        sequence.phase = Phase.RUNNING
        if not restore.drained and not self._exchange(sequence, restore, first):
            self._requeue(sequence)

    def _exchange(self, sequence: Sequence, restore: Restore, first: int) -> bool:
        late = [first + position for position in restore.flying()]
        spare = self._device.reserve(len(late))
        self._limbo.append((restore, [sequence.blocks[position] for position in late]))
        if spare is None:
            sequence.blocks = [b for i, b in enumerate(sequence.blocks) if i not in set(late)]
            return False
        for position, block in zip(late, spare, strict=True):
            sequence.blocks[position] = block
        return True

    def _drain_limbo(self) -> None:
        for restore, blocks in self._limbo:
            if restore.drained:
                self._device.give_back(blocks)
        self._limbo = [entry for entry in self._limbo if not entry[0].drained]

    def _ensure_block(self, sequence: Sequence) -> bool:
        """A place for the next token; preempts younger sequences, at last this one."""
        while sequence.phase is Phase.RUNNING:
            if len(sequence.blocks) * sequence.block_tokens > sequence.computed:
                return True
            block = self._device.reserve(1)
            if block is not None:
                sequence.blocks += block
                return True
            self._preempt(self.active[-1])
        return False

    def _preempt(self, sequence: Sequence) -> None:
        self._observer(Preempted(request_id=sequence.request.id, blocks=len(sequence.blocks)))
        self._requeue(sequence)

    def _requeue(self, sequence: Sequence) -> None:
        self.active.remove(sequence)
        self._let_go(sequence)
        sequence.reset()
        self.waiting.appendleft(sequence)

    def _let_go(self, sequence: Sequence) -> None:
        """Give a sequence's blocks back; those that a read may still write to, later."""
        restore, first = sequence.restore, sequence.restore_first
        late: set[int] = set()
        if restore is not None and not restore.drained:
            late = {sequence.blocks[first + position] for position in restore.flying()}
            self._limbo.append((restore, sorted(late)))
        self._device.give_back(block for block in sequence.blocks if block not in late)
        sequence.blocks = []

    def _chunk(self, sequence: Sequence, budget: int) -> int:
        """How many tokens of a prompt to compute next within `budget`."""
        end = min(len(sequence.tokens), sequence.computed + budget)
        if end < len(sequence.tokens):
            end -= end % CHUNK_MULTIPLE
        return max(0, end - sequence.computed)

    def _segment(self, sequence: Sequence, size: int) -> Segment:
        start, end = sequence.computed, sequence.computed + size
        return Segment(
            tokens=sequence.tokens[start:end],
            start=start,
            blocks=sequence.blocks[: sequence.blocks_for(end)],
            want_logits=end == len(sequence.tokens),
        )

    def _birth(self, sequence: Sequence, position: int, created_s: int | None = None) -> Birth:
        """A restored block is as old as its copy; any other begins to age now."""
        return Birth(
            namespace=sequence.namespace,
            parent=sequence.parent_of(position),
            depth=position,
            created_s=self._device.wall_s() if created_s is None else created_s,
        )

    def _again(self, sequence: Sequence, position: int, block: int) -> Block:
        """A cached block as it is offered once more: as old as it is."""
        birth = self._device.births.get(block)
        return replace(
            self._as_block(sequence, position),
            payload=self._device.view(block),
            created_ms=None if birth is None else birth.created_s * 1000,
        )

    def _as_block(self, sequence: Sequence, position: int) -> Block:
        return Block(
            namespace=sequence.namespace,
            key=sequence.keys[position],
            parent=sequence.parent_of(position),
            depth=position,
            tokens=sequence.block_tokens,
            payload=self._device.view(sequence.blocks[position]),
        )
