"""The stores of one process: segments of one size have a store of their own, since the slots of a
slab are of one size.

SGLang calls from several threads: it looks up in one, reads in a second, writes in a third. A lock
stands for the one thread that owns a store: whoever holds it does what takes microseconds, and
gives it up to wait for I/O.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pagoda.connect.sglang.namespace import key_of
from pagoda.connect.withheld import HiddenBlocks
from pagoda.core.identity import ROOT, Key, NamespaceId
from pagoda.core.outcome import Corrupt, Hit, Outcome
from pagoda.store.block import Block
from pagoda.store.restore import Restore
from pagoda.store.store import Store
from pagoda.tiers.drive import DriveTier

_STEP_S = 0.05  # a wait looks at least this often
_SPARSE = 64  # pages of a pool with gaps that the shared store is asked for: the last ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Pages of one pool: their namespace, the tokens of a page, and the sizes and stores of its
    segments in order; `hidden` are pages that SGLang computes though they are there."""

    namespace: NamespaceId
    tokens: int
    sizes: tuple[int, ...]
    stores: tuple[Store, ...]
    hidden: HiddenBlocks

    def key(self, name: str, segment: int) -> Key:
        """The key of a segment of the page that SGLang calls `name`."""
        return key_of(self.namespace, name, segment)

    def parts(self) -> list[tuple[Store, list[int]]]:
        """Each store with the segments that it has of every page."""
        stores = {id(store): store for store in self.stores}
        return [
            (store, [number for number, one in enumerate(self.stores) if one is store])
            for store in stores.values()
        ]


@dataclass(slots=True, eq=False)
class Moved:
    """What became of pages: `good` were read and verified, or are stored. `ended` says of each
    page whether no thread touches its buffers any more; `damaged` that one was read and is bad."""

    good: list[bool]
    ended: list[Callable[[], bool]]
    damaged: bool = False


@dataclass(slots=True, eq=False)
class _Saving:
    """Segments of one page on their way out."""

    waiting: int

    def over(self) -> bool:
        """Whether nobody reads its bytes any more."""
        return not self.waiting


class Shelves:
    """Pages in the stores of one process. Any thread. Once closed there is nothing in them."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._turn = threading.Condition(threading.RLock())
        self._stores: list[Store] = []

    def wake(self) -> None:
        """There is something to take in. From I/O threads."""
        with self._turn:
            self._turn.notify_all()

    def add(self, store: Store) -> None:
        """One more store, whose runtime calls `wake`."""
        with self._turn:
            self._stores.append(store)

    # Looking up.

    def leading(self, volume: Volume, names: Sequence[str]) -> int:
        """How many leading pages could be read now."""
        with self._turn:
            count = len(names) if self._stores else 0
            for store, segments in volume.parts():
                keys = [volume.key(name, number) for name in names[:count] for number in segments]
                count = min(count, self._match(store, volume.namespace, keys) // len(segments))
            return volume.hidden.lead([volume.key(name, 0) for name in names[:count]])

    def present(self, volume: Volume, names: Sequence[str]) -> list[bool]:
        """Which pages could be read now, each for itself. Of what only the shared store has, the
        last pages are found: those make the longest prefixes."""
        with self._turn:
            found = [bool(self._stores)] * len(names)
            for store, segments in volume.parts():
                pages = [[volume.key(name, number) for number in segments] for name in names]
                self._ask(store, volume.namespace, pages[-_SPARSE:])
                found = [
                    before and store.match(keys) == len(keys)
                    for before, keys in zip(found, pages, strict=True)
                ]
        return found

    def local(self, volume: Volume, names: Sequence[str]) -> list[bool]:
        """Which pages this process's own tiers hold."""
        with self._turn:
            found = [
                [
                    any(level.state.slot_of(volume.key(name, n)) is not None for level in levels)
                    for store, segments in volume.parts()
                    for levels in [store.levels()]
                    for n in segments
                ]
                for name in names
            ]
        return [all(page) for page in found]

    # Moving.

    def load(
        self, volume: Volume, names: Sequence[str], into: Sequence[Sequence[memoryview]]
    ) -> Moved:
        """Read pages into their buffers."""
        with self._turn:
            if not self._stores:
                return _nothing(names)
            orders = self._order(volume, names, into)
            self._wait(lambda: all(restore.done for page in orders for restore in page))
            outcomes = [[one for restore in page for one in _known(restore)] for page in orders]
            barred = any(store.quarantine.bars(volume.namespace) for store in volume.stores)
        good = [not barred and all(isinstance(one, Hit) for one in page) for page in outcomes]
        damaged = any(isinstance(one, Corrupt) for page in outcomes for one in page)
        return Moved(good, [_drained(page) for page in orders], damaged)

    def save(
        self,
        volume: Volume,
        names: Sequence[str],
        pages: Sequence[Sequence[memoryview]],
        *,
        until_s: float,
    ) -> Moved:
        """Store pages, and wait for it until a time on `clock`."""
        with self._turn:
            if not self._stores:
                return _nothing(names)
            going = self._send(volume, names, pages)
            self._wait(lambda: all(one.over() for one in going), until_s)
            good = [self._there(volume, name) for name in names]
        return Moved(good, [one.over for one in going])

    # Progress.

    def poll(self) -> bool:
        """Take in what has ended while SGLang does not call; whether anything is under way."""
        with self._turn:
            for store in self._stores:
                store.poll()
            return not all(store.idle for store in self._stores)

    def bounced(self) -> int:
        """Segments that were copied because their place in memory is not aligned."""
        tiers = [level.sealed.tier for store in self._stores for level in store.levels()]
        return sum(tier.bounced for tier in tiers if isinstance(tier, DriveTier))

    def clear(self) -> int:
        """Drop every page; returns how many segments those were."""
        with self._turn:
            return sum(store.clear() for store in self._stores)

    def close(self, *, flush_s: float) -> bool:
        """Write what waits, within `flush_s`; False when I/O is stuck."""
        until_s = self.clock() + flush_s
        with self._turn:
            stores, self._stores = self._stores, []
            self._turn.notify_all()
        # Without the lock: I/O threads need it to tell that they have ended.
        return all([store.close(flush_s=max(0.0, until_s - self.clock())) for store in stores])

    def _match(self, store: Store, namespace: NamespaceId, keys: Sequence[Key]) -> int:
        """How many leading segments there are; the shared store is asked for some at a time, as
        long as it has them."""
        found = store.match(keys)
        while store.shared is not None and found < len(keys):
            self._ask(store, namespace, [keys[found:]])
            before, found = found, store.match(keys)
            if found <= before:
                break
        return found

    def _ask(self, store: Store, namespace: NamespaceId, prefixes: Iterable[Sequence[Key]]) -> None:
        """Have the shared store, if there is one, say what it has."""
        if store.shared is not None:
            probes = [store.probe(namespace, keys) for keys in prefixes]
            self._wait(lambda: all(probe.done for probe in probes))

    def _order(
        self, volume: Volume, names: Sequence[str], into: Sequence[Sequence[memoryview]]
    ) -> list[list[Restore]]:
        """Order reads; one prefix a page and store: one that is bad or gone costs no other."""
        pages: list[list[Restore]] = [[] for _ in names]
        for store, segments in volume.parts():
            restores = store.restore_all(
                [
                    ([volume.key(name, n) for n in segments], [buffers[n] for n in segments])
                    for name, buffers in zip(names, into, strict=True)
                ]
            )
            for page, restore in zip(pages, restores, strict=True):
                page.append(restore)
        return pages

    def _send(
        self, volume: Volume, names: Sequence[str], pages: Sequence[Sequence[memoryview]]
    ) -> list[_Saving]:
        going = [_Saving(len(volume.sizes)) for _ in names]
        owners: dict[int, _Saving] = {}
        hidden = [volume.hidden.offered(volume.key(name, 0)) for name in names]

        def release(block: Block) -> None:
            owners[id(block)].waiting -= 1

        for store, segments in volume.parts():
            blocks = [
                self._block(volume, name, number, page[number])
                for name, page in zip(names, pages, strict=True)
                for number in segments
            ]
            owners |= {id(block): going[i // len(segments)] for i, block in enumerate(blocks)}
            checked = [one for i, one in enumerate(blocks) if hidden[i // len(segments)]]
            for block in checked:
                owners[id(block)].waiting += 1
            store.checks.compare(checked, release)
            store.save(blocks, release)
        return going

    def _block(self, volume: Volume, name: str, number: int, payload: memoryview) -> Block:
        return Block(
            namespace=volume.namespace,
            key=volume.key(name, number),
            parent=ROOT,  # SGLang's names do not tell
            depth=0,
            tokens=volume.tokens,
            payload=payload,
        )

    def _there(self, volume: Volume, name: str) -> bool:
        return all(
            store.match(keys := [volume.key(name, number) for number in segments]) == len(keys)
            for store, segments in volume.parts()
        )

    def _wait(self, done: Callable[[], bool], until_s: float = float("inf")) -> None:
        """Give the lock up until `done`, or until the time is over, or all is closed. What is
        waited for has a deadline of its own, which `poll` keeps."""
        while True:
            for store in self._stores:
                store.poll()
            now_s = self.clock()
            if done() or now_s >= until_s or not self._stores:
                return
            deadlines = [store.next_deadline_s() for store in self._stores]
            next_s = min((at_s for at_s in deadlines if at_s is not None), default=until_s)
            self._turn.wait(max(0.001, min(next_s - now_s, until_s - now_s, _STEP_S)))


def _nothing(names: Sequence[str]) -> Moved:
    """No page was moved."""
    return Moved([False] * len(names), [lambda: True] * len(names))


def _known(restore: Restore) -> Sequence[Outcome | None]:
    """The outcomes of a restore; of one that the end has overtaken nothing is known."""
    return restore.outcomes if restore.done else [None]


def _drained(restores: Sequence[Restore]) -> Callable[[], bool]:
    return lambda: all(restore.drained for restore in restores)
