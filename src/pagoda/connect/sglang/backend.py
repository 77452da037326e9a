"""SGLang's pages in the stores of one process: what its threads ask for, pool by pool.

It knows host pools and names of pages, and none of SGLang's classes. Each call ends within
store.restore_deadline: it moves a window of pages at a time, begins none in the second half of
that time, and gives what it reads half of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagoda.connect.announced import Announced
from pagoda.connect.counts import BOUNCED, Counts
from pagoda.connect.sglang.held import GuardedPool
from pagoda.connect.sglang.host_pools import KV, HostPools
from pagoda.connect.sglang.library import Library
from pagoda.connect.sglang.metrics import UNIT
from pagoda.connect.sglang.pages import Buffers, Pages
from pagoda.connect.sglang.shelves import Moved, Shelves, Volume
from pagoda.core.errors import PagodaError
from pagoda.core.identity import Key

_WINDOW_BYTES = 64 << 20
_BUSY_S, _IDLE_S = 0.02, 0.5  # how often our thread looks, with and without work under way
_log = logging.getLogger("pagoda.connect")


@dataclass(slots=True, eq=False)
class Batch:
    """A batch of pages that was moved: how many bytes those that are `good` have, in what time."""

    good: list[bool] = field(default_factory=list)
    size_bytes: int = 0
    seconds: float = 0.0


class Backend:
    """The pages of one process. Any thread."""

    def __init__(self, library: Library, *, in_place: bool) -> None:
        self._library = library
        self._deadline_s = library.settings.store.restore_deadline
        self.pools = HostPools(in_place=in_place)
        self._volumes: Mapping[str, Volume] | None = None
        self._opening = threading.Lock()
        self._shelves = Shelves()
        self._clock = self._shelves.clock
        self.counts = Counts(UNIT)
        self._bounced = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tend, name="pagoda-sglang", daemon=True)
        self.on_open: Callable[[], None] = lambda: None
        self.on_tend: Callable[[], None] = lambda: None
        self.on_close: Callable[[], None] = lambda: None

    def open(self) -> None:
        """Open the stores. Raises TierError, such as DirectoryLocked when another server has a
        directory, ModelError and SettingsError."""
        with self._opening:
            if self._volumes is None:
                self._volumes = self._opened()
                self.on_open()
                self._thread.start()

    def _opened(self) -> Mapping[str, Volume]:
        try:
            return self._library.open(self.pools.all(), self._shelves, self.counts)
        except BaseException:
            self._shelves.close(flush_s=0.0)  # a failed start leaves no directory locked
            raise

    # Looking up.

    def leading(self, names: Sequence[str]) -> int:
        """How many leading pages of the KV could be read now."""
        volume = self._volume(KV)
        return self._shelves.leading(volume, names) if volume else 0

    def present(self, pool: str, names: Sequence[str]) -> list[bool]:
        """Which pages of a pool could be read now."""
        volume = self._volume(pool)
        return self._shelves.present(volume, names) if volume else [False] * len(names)

    def announced(self) -> Announced:
        """Pages of the KV on this process's drives, to be told of; once the stores are open."""
        volume = self._open_volume(KV)

        def there(keys: Sequence[Key]) -> list[bool]:
            return self._shelves.local(volume, [key.hex() for key in keys])

        return Announced(
            Key,  # a name is looked up as it is
            there,
            file=self._library.names(volume),
            executor=volume.stores[0].runtime.executor,
        )

    # Moving.

    def get(self, pool: str, names: Sequence[str], indices: Any) -> Batch:
        """Read pages to where SGLang wants them, up to the first that does not arrive. Behind a
        damaged one the rest is read all the same: SGLang computes it again and stores it, which
        puts right what is known to be bad, and nothing else."""
        batch, began_s = Batch(), self._clock()
        within_s = self._deadline_s / 2
        for window, own, pages, guard in self._windows(pool, names, indices, within_s, staged=True):
            buffers = self._prepared(pages.room, own, guard)
            moved = self._shelves.load(self._open_volume(pool), names[window], buffers)
            pages.take(own, buffers, moved.good)
            self._over(guard, own, moved)
            batch.good += moved.good
            if not all(moved.good) and not moved.damaged:
                break
        return self._told(batch, pool, names, began_s)

    def set(self, pool: str, names: Sequence[str], indices: Any) -> Batch:
        """Store pages; those that have no turn in time are not stored."""
        batch, began_s = Batch(), self._clock()
        until_s = began_s + self._deadline_s
        for window, own, pages, guard in self._windows(pool, names, indices, self._deadline_s):
            filled = self._prepared(pages.filled, own, guard)
            moved = self._shelves.save(
                self._open_volume(pool), names[window], filled, until_s=until_s
            )
            self._over(guard, own, moved)
            batch.good += moved.good
        self._skipped(pool, len(names) - len(batch.good))
        return self._told(batch, pool, names, began_s)

    def load(self, names: Sequence[str], buffers: Buffers) -> Batch:
        """Read pages of the KV into memory that is the caller's until they are drained."""
        return self._carried(names, buffers, self._shelves.load)

    def save(self, names: Sequence[str], buffers: Buffers) -> Batch:
        """Store pages of the KV from memory that nobody else uses."""
        until_s = self._clock() + self._deadline_s

        def move(volume: Volume, some: Sequence[str], pages: Buffers) -> Moved:
            return self._shelves.save(volume, some, pages, until_s=until_s)

        return self._carried(names, buffers, move)

    # Progress.

    def clear(self) -> int:
        """Drop every page from this process's drives; returns how many segments those were."""
        return self._shelves.clear()

    def close(self) -> bool:
        """Write what waits, and give the directories back; False when I/O is stuck."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.on_close()
        quiet = self._shelves.close(flush_s=self._library.settings.store.flush_deadline)
        self.pools.leave()
        return quiet

    def _volume(self, name: str) -> Volume | None:
        """Where a pool's pages are; None when nothing can be stored."""
        if self._volumes is None:
            try:
                self.open()
            except PagodaError:
                _log.exception("nothing is stored or restored from now on")
                self._volumes = {}
        return (self._volumes or {}).get(name)

    def _open_volume(self, name: str) -> Volume:
        volume = self._volume(name)
        assert volume is not None, "nothing is moved where nothing can be stored"
        return volume

    def _windows(
        self,
        name: str,
        names: Sequence[str],
        indices: Any,
        seconds: float,
        *,
        staged: bool = False,
    ) -> Iterator[tuple[slice, Any, Pages, GuardedPool | None]]:
        """Runs of pages with their indices, and how they are moved, until the time is over. Where
        none may be moved in place, since too many are held, they are `staged`, or not moved."""
        if self._volume(name) is None or not self._whole(name, names, indices):
            return
        until_s = self._clock() + seconds
        pages, guard = self.pools.way(name)
        step = max(1, _WINDOW_BYTES // sum(pages.sizes))
        first = 0
        while first < len(names) and self._clock() < until_s:
            wanted = min(step, len(names) - first)
            count = wanted if guard is None else guard.begin(wanted)
            if not count and not staged:
                return
            if not count:
                count, pages, guard = wanted, self.pools.staged(name), None
            own = indices[first * pages.tokens : (first + count) * pages.tokens]
            yield slice(first, first + count), own, pages, guard
            first += count

    def _whole(self, name: str, names: Sequence[str], indices: Any) -> bool:
        tokens = self.pools.staged(name).tokens
        if indices is not None and len(indices) == len(names) * tokens:
            return True
        _log.error("pool %s: %d pages do not have %d indices each", name, len(names), tokens)
        return False

    def _prepared(
        self, prepare: Callable[[Any], Buffers], indices: Any, guard: GuardedPool | None
    ) -> Buffers:
        """Buffers of pages; where there are none, nothing has begun."""
        try:
            return prepare(indices)
        except BaseException:
            if guard is not None:
                guard.withdraw(indices)
            raise

    def _over(self, guard: GuardedPool | None, indices: Any, moved: Moved) -> None:
        if guard is not None:
            guard.end(indices, moved.ended)

    def _carried(
        self,
        names: Sequence[str],
        buffers: Buffers,
        move: Callable[[Volume, Sequence[str], Buffers], Moved],
    ) -> Batch:
        volume = self._volume(KV)
        batch, began_s = Batch(), self._clock()
        if volume is not None and all(_sizes(page) == volume.sizes for page in buffers):
            batch.good = move(volume, names, buffers).good
        return self._told(batch, KV, names, began_s)

    def _told(self, batch: Batch, pool: str, names: Sequence[str], began_s: float) -> Batch:
        batch.seconds = self._clock() - began_s
        volume = self._volume(pool)
        batch.size_bytes = sum(batch.good) * sum(volume.sizes) if volume else 0
        batch.good += [False] * (len(names) - len(batch.good))
        return batch

    def _skipped(self, pool: str, pages: int) -> None:
        volume = self._volume(pool)
        if volume is not None and pages:
            self.counts.add(f"pagoda_skipped_{UNIT}", pages * len(volume.sizes), pool, "busy")

    def _tend(self) -> None:
        """Take in what ends while SGLang does not call, and give pages back."""
        pause_s = _IDLE_S
        while not self._stop.wait(pause_s):
            busy = self._shelves.poll()
            self.pools.settle()
            self._count_copies()
            self._tell()
            pause_s = _BUSY_S if busy or self.pools.held else _IDLE_S

    def _tell(self) -> None:
        """Whoever listens fails for himself: pages have to be given back."""
        try:
            self.on_tend()
        except Exception:  # noqa: BLE001 - whatever it is, pages are given back
            _log.exception("telling of pages failed")

    def _count_copies(self) -> None:
        """Of whole pages by us, and of segments below the store."""
        bounced = self._shelves.bounced() + self.pools.copied
        self.counts.add(BOUNCED, bounced - self._bounced)
        self._bounced = bounced


def _sizes(page: Sequence[memoryview]) -> tuple[int, ...]:
    return tuple(len(segment) for segment in page)
