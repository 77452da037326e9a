"""Clearing: blocks of a selection leave every tier, and their headers are read back to prove it.

They cannot be found once `start` returns, but for those that are still on their way into a
tier, and those below a prefix, which only headers tell. So it goes on in the background:

1. wait until what was being written is written (`settled`); when everything is to go, what is
   queued is dropped, and only what an I/O thread has begun is waited for;
2. withdraw what is published, erase headers of blocks that were evicted earlier or whose write
   failed: they stay on the medium until their slot is reused, and a restart would find them;
3. read all headers back; done when they name nothing of the selection, else from 2 again.

What was first stored after 1 belongs to requests that came later, and stays. Headers are erased;
payloads stay on the medium, unreachable, until they are overwritten.

The promise of a verified clearing: no later process finds a cleared block, also if this one is
killed right after the answer. After a power cut the same holds as far as the drive keeps what it
has confirmed: erased headers are synced before they count as erased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from pagoda.core.holdings import Cleared, Selection, lineage
from pagoda.core.identity import Key
from pagoda.store.clearing_level import Doom, LevelClearing
from pagoda.store.clearing_shared import SharedPart
from pagoda.store.executor import Runtime
from pagoda.store.store import Store

_ROUNDS = 8
_DEADLINE_S = 300.0  # a tier that hangs is not waited for


class Above(Protocol):
    """The engine's own blocks, which no tier's headers tell of."""

    def links(self) -> Iterable[tuple[Key, Key]]:
        """(key, parent) of every published block."""
        ...

    def drop(self, selection: Selection, keys: frozenset[Key] | None) -> int:
        """Unpublish blocks of a selection, or those of its prefix by their keys."""
        ...


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
        self._levels = [LevelClearing(store, level, selection) for level in store.levels()]
        self._device_dropped = 0
        self._settled_s: int | None = None  # wall clock; what is first stored later stays
        self._reading = 0  # levels whose headers are being read back
        self._rounds = 0
        self.done = False

    def start(self) -> None:
        """Withdraw what can be named without reading headers."""
        if self._selection.below is None:
            self._withdraw_chosen()
        if self._selection.everything:
            self._store.clear()  # what is queued goes as well
        self.poll()

    def poll(self) -> None:
        """Go on as far as the I/O allows."""
        if not self.done and self._clock() >= self._until_s:
            self._end(verified=False)
        if self.done or self._reading:
            return
        if self._settled_s is None and not self._settle():
            return
        for level in self._levels:
            level.poll()
        if self._shared.done and all(level.quiet for level in self._levels):
            self._read_back()

    def _settle(self) -> bool:
        """Whether what was under way at the start is in its tiers by now, or given up."""
        everything = self._selection.everything
        if self._store.cancelling if everything else self._store.writing:
            return False
        self._settled_s = self._wall_ms() // 1000 + 1  # created_s is rounded down
        if self._selection.below is None and not everything:
            self._withdraw_chosen()
        self._shared.start()
        return True

    def _withdraw_chosen(self) -> None:
        self._device_dropped += self._above.drop(self._selection, None)
        for level in self._levels:
            level.withdraw_chosen()

    def _read_back(self) -> None:
        self._rounds += 1
        self._reading = len(self._levels)

        def read() -> None:
            self._reading -= 1
            if not self._reading and not self.done:
                self._judge()

        for level in self._levels:
            level.read_back(read)
        if not self._levels:
            self._end(verified=True)

    def _judge(self) -> None:
        """All headers are read: end, or begin another round with what they name."""
        doom = self._doom()
        if doom.keys is not None:
            self._device_dropped += self._above.drop(self._selection, doom.keys)
        left = sum(level.act(doom) for level in self._levels)
        failed = not all(level.readable for level in self._levels)
        if left == 0 or failed or self._rounds >= _ROUNDS:
            self._end(verified=left == 0 and not failed)

    def _doom(self) -> Doom:
        """What is to go. A prefix' chain may lie in pieces, over all tiers."""
        keys = None
        if self._selection.below is not None:
            links = [(one.key, one.parent) for level in self._levels for one in level.written]
            keys = frozenset(lineage([*links, *self._above.links()], self._selection.below))
        return Doom(self._settled_s or 0, keys)

    def _end(self, *, verified: bool) -> None:
        self.done = True
        doom = self._doom()
        dropped = Counter({"device": self._device_dropped})
        dropped.update({level.name: level.dropped for level in self._levels})
        for scan in self._shared.scans():
            dropped[scan.tier] += self._shared.dropped
        self._tell(
            Cleared(
                dropped={tier: blocks for tier, blocks in dropped.items() if blocks},
                erased=sum(level.erased for level in self._levels),
                scans=(*(level.scanned(doom) for level in self._levels), *self._shared.scans()),
                verified=verified and self._shared.done and self._shared.verified,
                untouched=self._shared.untouched(),
            )
        )
