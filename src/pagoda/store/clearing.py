"""Clearing: blocks of a selection leave every tier, and their headers are read back to prove it.

They cannot be found once `start` returns, but for those that are still on their way into a
tier, and those below a prefix, which only headers tell. So it goes on in the background:

1. wait until what was being written is written (`settled`);
2. withdraw what is published, erase headers of blocks that were evicted earlier: an evicted
   block's header stays on the medium until its slot is reused, and a restart would find it;
3. read all headers back; done when they name nothing of the selection, else from 2 again.

What was written after 1 belongs to requests that came later, and stays. Headers are erased;
payloads stay on the medium, unreachable, until they are overwritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from pagoda.core.errors import TierError
from pagoda.core.holdings import Cleared, Scanned, Selection, lineage
from pagoda.core.identity import Key
from pagoda.core.state import SlotState
from pagoda.store.census import chosen
from pagoda.store.clearing_shared import SharedPart
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.headers_back import ReadBack, Written, read_back
from pagoda.store.level import Level
from pagoda.store.store import Store

_ROUNDS = 8
_DEADLINE_S = 300.0  # a tier that hangs is not waited for
_SWEEP_SLOTS = 4096  # free slots looked through at a time


class Above(Protocol):
    """The engine's own blocks, which no tier's headers tell of."""

    def links(self) -> Iterable[tuple[Key, Key]]:
        """(key, parent) of every published block."""
        ...

    def drop(self, selection: Selection, keys: frozenset[Key] | None) -> int:
        """Unpublish blocks of a selection, or those of its prefix by their keys."""
        ...


@dataclass(slots=True)
class Sweep:
    """Headers of free slots that are being erased: slots are reserved for it, a few at a time,
    so that no new block can be erased in their place."""

    doomed: set[int]
    unseen: int
    flying: int = 0

    @property
    def done(self) -> bool:
        return not self.flying and (not self.doomed or self.unseen <= 0)


@dataclass(slots=True, eq=False)
class Work:
    """One level's share of a round."""

    level: Level
    withdrawn: list[tuple[int, int]] = field(default_factory=list)  # slot, generation
    sweep: Sweep = field(default_factory=lambda: Sweep(set(), 0))
    scan: ReadBack | None = None

    def erased(self) -> bool:
        """Whether everything that this round withdrew has been erased and set free."""
        state = self.level.state
        self.withdrawn = [(s, g) for s, g in self.withdrawn if state.generation(s) == g]
        return not self.withdrawn and self.sweep.done


class Clearing:
    """One clearing on its way. Owner's thread; `tell` is called once, at its end."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        above: Above,
        *,
        runtime: Runtime,
        tell: Callable[[Cleared], None],
    ) -> None:
        self._store = store
        self._selection = selection
        self._above = above
        self._clock = runtime.clock
        self._until_s = runtime.clock() + _DEADLINE_S
        self._wall_ms = runtime.wall_ms
        self._tell = tell
        self._shared = SharedPart(store.shared, selection)
        self._works = [Work(level) for level in store.levels()]
        self._dropped: Counter[str] = Counter()
        self._erased = 0
        self._settled_s: int | None = None  # wall clock; what is written later stays
        self._scanning = False
        self._rounds = 0
        self.done = False

    def start(self) -> None:
        """Withdraw what can be named without reading headers."""
        if self._selection.below is None:
            self._withdraw_chosen()
        self.poll()

    def poll(self) -> None:
        """Go on as far as the I/O allows."""
        if not self.done and self._clock() >= self._until_s:
            self._end(verified=False)
        if self.done or self._scanning:
            return
        if self._settled_s is None and not self._settle():
            return
        for work in self._works:
            self._sweep(work)
        if self._shared.done and all(work.erased() for work in self._works):
            self._scan()

    def _settle(self) -> bool:
        """Whether what was under way at the start is in its tiers by now, or given up."""
        if self._store.writing:
            return False
        self._settled_s = self._wall_ms() // 1000 + 1  # created_s is rounded down
        if self._selection.below is None:
            self._withdraw_chosen()
        self._shared.start()
        return True

    def _withdraw_chosen(self) -> None:
        self._dropped["device"] += self._above.drop(self._selection, None)
        for work in self._works:
            self._withdraw(work, chosen(work.level, self._selection).tolist())

    def _withdraw(self, work: Work, slots: list[int]) -> None:
        state = work.level.state
        work.withdrawn += [(slot, state.generation(slot)) for slot in slots]
        self._dropped[work.level.name] += len(slots)
        self._store.discard(work.level, slots)

    def _scan(self) -> None:
        self._scanning = True
        self._rounds += 1
        for work in self._works:
            work.scan = None
            self._send_scan(work)
        if not self._works:
            self._end(verified=True)

    def _send_scan(self, work: Work) -> None:
        def landed(found: ReadBack) -> None:
            work.scan = found
            if not self.done and all(other.scan is not None for other in self._works):
                self._scanning = False
                self._judge()

        sealed = work.level.sealed
        lane = Lane(work.level.name, Kind.CHECK)
        self._store.orders.send(lane, lambda: read_back(sealed, self._selection), landed)

    def _judge(self) -> None:
        """All headers are read: end, or begin another round with what they name."""
        keys = self._keys_below()
        if keys is not None:
            self._dropped["device"] += self._above.drop(self._selection, keys)
        left = sum(self._act(work, keys) for work in self._works)
        failed = any(work.scan is not None and work.scan.error for work in self._works)
        if left == 0 or failed or self._rounds >= _ROUNDS:
            self._end(verified=left == 0 and not failed)

    def _keys_below(self) -> frozenset[Key] | None:
        """The keys of a prefix' blocks: its chain may lie in pieces, over all tiers."""
        below = self._selection.below
        if below is None:
            return None
        links = [(one.key, one.parent) for work in self._works for one in _written(work)]
        return frozenset(lineage([*links, *self._above.links()], below))

    def _act(self, work: Work, keys: frozenset[Key] | None) -> int:
        """Withdraw and erase what a level's headers name; returns how many."""
        state = work.level.state
        doomed = [one for one in _written(work) if keys is None or one.key in keys]
        here = [one for one in doomed if state.key_of(one.slot) == one.key]
        old = [one.slot for one in here if one.created_s < (self._settled_s or 0)]
        gone = [one.slot for one in doomed if state.key_of(one.slot) != one.key]
        self._withdraw(work, old)
        work.sweep = Sweep(set(gone), state.free_count())
        self._erase_quarantined(work)
        return len(old) + len(gone)

    def _erase_quarantined(self, work: Work) -> None:
        """Such a slot is never reused: nothing to hold it against."""
        state, sweep = work.level.state, work.sweep
        slots = [s for s in sweep.doomed if state.state_of(s) is SlotState.QUARANTINED]
        sweep.doomed.difference_update(slots)
        self._erase(work, slots, lambda: None)

    def _sweep(self, work: Work) -> None:
        """Take some free slots, keep those with a doomed header, give the others back."""
        sweep, state = work.sweep, work.level.state
        if sweep.flying or sweep.done:
            return
        taken = state.reserve(min(_SWEEP_SLOTS, sweep.unseen))
        sweep.unseen -= max(1, len(taken))
        mine = [slot for slot in taken if slot in sweep.doomed]
        state.abandon([slot for slot in taken if slot not in sweep.doomed])
        sweep.doomed.difference_update(mine)
        self._erase(work, mine, lambda: state.abandon(mine))

    def _erase(self, work: Work, slots: list[int], then: Callable[[], None]) -> None:
        if not slots:
            return
        work.sweep.flying += 1
        self._erased += len(slots)
        sweep, sealed = work.sweep, work.level.sealed

        def job() -> TierError | None:
            try:
                sealed.free(slots)
            except TierError as error:
                return error
            return None

        def landed(error: TierError | None) -> None:
            del error  # the headers are still there: the next scan says so
            sweep.flying -= 1
            then()

        self._store.orders.send(Lane(work.level.name, Kind.STORE), job, landed)

    def _end(self, *, verified: bool) -> None:
        self.done = True
        for scan in self._shared.scans():
            self._dropped[scan.tier] += self._shared.dropped
        self._tell(
            Cleared(
                dropped={tier: blocks for tier, blocks in self._dropped.items() if blocks},
                erased=self._erased,
                scans=(*(self._as_scanned(work) for work in self._works), *self._shared.scans()),
                verified=verified and self._shared.done and self._shared.verified,
                untouched=self._shared.untouched(),
            )
        )

    def _as_scanned(self, work: Work) -> Scanned:
        state, written = work.level.state, _written(work)
        keys = self._keys_below()
        mine = [one for one in written if keys is None or one.key in keys]
        newer = [
            one
            for one in mine
            if state.key_of(one.slot) == one.key and one.created_s >= (self._settled_s or 0)
        ]
        headers = work.scan.headers if work.scan is not None else 0
        return Scanned(
            tier=work.level.name, headers=headers, left=len(mine) - len(newer), newer=len(newer)
        )


def _written(work: Work) -> list[Written]:
    return work.scan.written if work.scan is not None else []
