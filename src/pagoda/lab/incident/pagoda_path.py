"""Requests over Pagoda: the upper tier as the engine keeps it, the store and its tiers below.

What arrived together is answered together: one look-up and lease a prefix, one restore for all
that is missing above, one pass over what neither tier delivered. Nothing here checks bytes; the
oracle does, from outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.errors import EngineClosed
from pagoda.core.identity import ROOT, Key, NamespaceId
from pagoda.core.outcome import Hit
from pagoda.core.policy import REGISTRY
from pagoda.core.residency import Residency
from pagoda.core.state import TierState
from pagoda.lab.incident.oracle import Oracle
from pagoda.lab.incident.traffic import true_bytes
from pagoda.machine.buffers import aligned_buffer, populate
from pagoda.store.block import Block
from pagoda.store.restore import Restore
from pagoda.store.store import Store

NAMESPACE = NamespaceId(bytes(range(32)))
TOKENS = 16
POLICY = "lru"  # in all tiers: at this rate a policy has half a microsecond a block
_FILLED_AT_ONCE = 1024  # blocks
_FILL_S = 120.0


@dataclass(slots=True)
class Visit:
    """A request under way: its prefix, and the slots of the upper tier it holds so far.

    The first `found` blocks were in the upper tier; `restore` brings the others.
    """

    number: int
    keys: Sequence[Key]
    slots: list[int]
    found: int
    restore: Restore | None = None


class PagodaPath:
    """The owner's thread of a node; see `service.Path`."""

    failed = 0  # no tier can make a request fail

    def __init__(self, store: Store, *, upper_blocks: int, block_bytes: int) -> None:
        self.store = store
        self._block_bytes = block_bytes
        self._upper = Residency(TierState("upper", upper_blocks), REGISTRY[POLICY](upper_blocks))
        memory = aligned_buffer(upper_blocks * block_bytes)
        populate(memory)
        self._pool = memoryview(memory)
        self._views = [
            self._pool[slot * block_bytes : (slot + 1) * block_bytes]
            for slot in range(upper_blocks)
        ]
        self._oracle = Oracle(self._pool, self._views, block_bytes)
        self._asked: deque[tuple[int, Sequence[Key]]] = deque()  # no room for them yet
        self._waiting: list[Visit] = []
        self._saving: dict[Key, int] = {}
        self._filling = 0
        self._first = store.levels()[0].name
        self.restored = 0  # blocks read from below, verified
        self.computed = 0  # blocks that no tier delivered
        self.crossed = 0  # requests of which a block crossed a tier

    @property
    def wrong(self) -> int:
        """Blocks served whose bytes are not the true ones."""
        return self._oracle.wrong

    @property
    def refused(self) -> int:
        """Index entries that led to a slot without its block, and were not followed."""
        states = [self._upper.state, *(level.state for level in self.store.levels())]
        return sum(state.stale for state in states)

    @property
    def waiting(self) -> int:
        """Requests under way."""
        return len(self._waiting) + len(self._asked)

    def begin(self, requests: Sequence[tuple[int, Sequence[Key]]]) -> None:
        self._asked += requests
        self._admit()

    def step(self) -> list[int]:
        """Take in what has arrived; returns the numbers of the requests that are answered."""
        self.store.poll()
        done: list[Visit] = []
        waiting: list[Visit] = []
        for visit in self._waiting:
            arrived = visit.restore is not None and visit.restore.drained
            (done if arrived else waiting).append(visit)
        self._waiting = waiting
        for visit in done:
            self._fill(visit)
        if done:
            self._oracle.check([(visit.keys, visit.slots, visit.found) for visit in done])
        for visit in done:
            self._upper.state.release(visit.slots)
        self._admit()
        return [visit.number for visit in done]

    def _admit(self) -> None:
        """Look up, lease and order what is missing, for as many as the upper tier has room."""
        visits: list[Visit] = []
        while self._asked:
            number, keys = self._asked[0]
            found = self._upper.lease_prefix(keys)
            fresh = self._upper.reserve(len(keys) - len(found))
            if len(found) + len(fresh) < len(keys):
                self._upper.state.abandon(fresh)
                self._upper.state.release(found)
                break
            self._asked.popleft()
            visits.append(Visit(number, keys, found + fresh, len(found)))
        if not visits:
            return
        prefixes = [
            (visit.keys[visit.found :], [self._views[slot] for slot in visit.slots[visit.found :]])
            for visit in visits
        ]
        for visit, restore in zip(visits, self.store.restore_all(prefixes), strict=True):
            visit.restore = restore
        self._waiting += visits

    def fill(self, keys: Sequence[Key]) -> None:
        blocks = [
            self._block(keys, i, memoryview(true_bytes(keys[i], self._block_bytes)))
            for i in range(len(keys))
        ]
        self.store.save(blocks, _forget)
        self._filling += len(blocks)
        if self._filling >= _FILLED_AT_ONCE:
            self.settle()

    def settle(self) -> None:
        self._filling = 0
        if not self.store.flush(_FILL_S):
            raise EngineClosed(f"the tiers were not filled within {_FILL_S:.0f} s")

    def counts(self) -> dict[str, int]:
        """What moved, since the start."""
        return {"restored": self.restored, "computed": self.computed, "crossed": self.crossed}

    def check_invariants(self) -> None:
        """Both halves add up."""
        self._upper.check_invariants()
        self.store.check_invariants()

    def _fill(self, visit: Visit) -> None:
        """Publish what came from below, compute the rest, and have it stored."""
        assert visit.restore is not None, "only a request under way is filled"
        usable = visit.found + visit.restore.usable_blocks
        keys, slots = visit.keys, visit.slots
        self.restored += usable - visit.found
        self.crossed += usable > visit.found
        for position in range(usable, len(keys)):
            self._views[slots[position]][:] = true_bytes(keys[position], self._block_bytes)
        self.computed += len(keys) - usable
        parents = [ROOT, *keys][visit.found : len(keys)]
        published = self._upper.publish(slots[visit.found :], keys[visit.found :], parents)
        if len(published) < len(keys) - visit.found:  # another request was first with some
            self._share(visit, set(published))
        self._save(visit, self._missing_in_memory(visit, usable))

    def _missing_in_memory(self, visit: Visit, usable: int) -> list[int]:
        """Positions of what was computed, and of what had to come from below the first tier:
        it was asked for, so memory gets it back."""
        assert visit.restore is not None, "only a request under way is filled"
        below = [
            visit.found + position
            for position, outcome in enumerate(visit.restore.outcomes[: usable - visit.found])
            if isinstance(outcome, Hit) and outcome.tier != self._first
        ]
        return below + list(range(usable, len(visit.keys)))

    def _share(self, visit: Visit, published: set[int]) -> None:
        """Take the copies that others published meanwhile; give the private ones back."""
        for position in range(visit.found, len(visit.keys)):
            slot = visit.slots[position]
            if slot in published:
                continue
            self._upper.state.abandon([slot])
            visit.slots[position : position + 1] = self._upper.lease_prefix(
                visit.keys[position : position + 1]
            )

    def _save(self, visit: Visit, positions: Sequence[int]) -> None:
        """Store blocks; the upper tier keeps them leased until they are written."""
        fresh: list[Block] = []
        for position in positions:
            key, slot = visit.keys[position], visit.slots[position]
            if key not in self._saving:
                self._saving[key] = slot
                self._upper.state.lease([slot])
                fresh.append(self._block(visit.keys, position, self._views[slot]))
        if fresh:
            self.store.save(fresh, self._saved)

    def _saved(self, block: Block) -> None:
        self._upper.state.release([self._saving.pop(block.key)])

    def _block(self, keys: Sequence[Key], position: int, payload: memoryview) -> Block:
        return Block(
            namespace=NAMESPACE,
            key=keys[position],
            parent=keys[position - 1] if position else ROOT,
            depth=position,
            tokens=TOKENS,
            payload=payload,
        )


def _forget(block: Block) -> None:
    """Nobody lent these bytes."""
