"""Writing to a shared store in the background, and clearing a namespace there.

One run of blocks is on its way at a time. What is known to be there is not sent; what is not
known is asked for first, unless a copy was bad a short while ago: then the store's word that
it has one counts for nothing, and the good block is written over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagoda.core.errors import TierError, TierTimeout
from pagoda.core.events import Degraded, Reason, Skipped, Stored
from pagoda.core.identity import NamespaceId
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.queue import Pending, WriteQueue
from pagoda.store.shared_link import Link
from pagoda.store.shared_run import SharedRun
from pagoda.store.write import loads_of
from pagoda.tiers.remote.sealed import Emptied, Name
from pagoda.tiers.sealed import reason_of

_NO_GENERATION = 0  # a name has none
_PAGE_BYTES = 4096


@dataclass(slots=True, eq=False)
class SharedClearing:
    """A namespace being cleared: `result` or `error` once it is done."""

    namespace: NamespaceId
    deadline_s: float
    result: Emptied | None = None
    error: TierError | None = None

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None


class SharedWrites:
    """The write half. All methods run in the owner's thread, jobs in I/O threads."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._queue = WriteQueue(link.config.queue_bytes)
        self._run: SharedRun | None = None
        self._clearings: list[SharedClearing] = []
        self._clearing: SharedClearing | None = None  # the one under way
        self._staging: memoryview | None = None
        self._why = Reason.IO_ERROR  # of the last failed write

    @property
    def idle(self) -> bool:
        return not self._queue and self._run is None and not self._clearings

    def offer(self, items: Sequence[Pending]) -> None:
        """Queue blocks; what is there already, or does not fit the queue, is released now."""
        for item in items:
            self._enqueue(item)
        self._pump()

    def clear(self, namespace: NamespaceId) -> SharedClearing:
        """Delete a namespace's blocks, once the write under way has landed, and list what is
        left. Nothing of it is found from now on; until it is done nothing is written."""
        link = self._link
        clearing = SharedClearing(namespace, link.clock() + link.config.clear_deadline_s)
        link.presence.forget(namespace)
        if self._run is not None:
            self._run.cleared.add(namespace)
        self._skip_where(lambda item: item.block.namespace == namespace, Reason.CLOSED)
        self._clearings.append(clearing)
        self._pump()
        return clearing

    def bar(self, namespace: NamespaceId) -> None:
        """Send nothing more of a namespace, and delete what is being sent."""
        if self._run is not None:
            self._run.cleared.add(namespace)
        self._skip_where(lambda item: item.block.namespace == namespace, Reason.QUARANTINED)

    def drop(self, names: Sequence[Name]) -> None:
        """Delete bad blocks if that can be done now; whatever comes of it, they are not read."""
        if not names or not self._link.guard.writes.admits():
            return

        def job() -> None:
            try:
                self._link.sealed.drop(names)
            except TierError:
                return

        self._link.orders.send(self._link.stores, job, lambda _: None)

    def cancel(self) -> None:
        """Forget what is queued; of a run under way, no further order is sent, so that the tiers
        that hold its blocks may close."""
        if self._run is not None:
            self._run.cancelled = True
        self._skip_where(lambda _: True, Reason.CLOSED)

    def expire(self) -> None:
        """Drop what has waited too long."""
        now_s = self._link.clock()
        for item in self._queue.overdue(now_s):
            self._give_up(item, Reason.TIMEOUT)
        for clearing in [clearing for clearing in self._clearings if now_s >= clearing.deadline_s]:
            self._clearings.remove(clearing)
            clearing.error = TierTimeout(
                f"{self._link.name}: clearing a namespace took too long",
                tier=self._link.name,
                deadline_s=self._link.config.clear_deadline_s,
                remedy="clear it again once the store answers",
            )
        self._pump()

    def next_deadline_s(self) -> float | None:
        """When `expire` has something to do that somebody waits for."""
        return min((clearing.deadline_s for clearing in self._clearings), default=None)

    def _enqueue(self, item: Pending) -> None:
        link, key = self._link, item.block.key
        if key in self._queue or link.presence.name_of(key, link.clock()) is not None:
            item.release()
        elif not self._queue.add(item):
            self._skip(item, Reason.BUSY)

    def _pump(self) -> None:
        if self._run is not None or self._clearing is not None:
            return
        if self._clearings:
            self._start_clearing(self._clearings[0])
        elif self._queue and not self._link.guard.writes.admits():
            self._skip_where(lambda _: True, self._why)
        elif self._queue:
            self._start()

    def _start(self) -> None:
        link = self._link
        items = self._queue.take(link.config.run_blocks)
        loads = loads_of(items)
        run = self._run = SharedRun(
            items,
            [item.block.seal(generation=_NO_GENERATION) for item in items],
            frozenset(i for i, item in enumerate(items) if self._was_bad(item)),
            loads,
            self._staged(items) if loads else [],
        )
        if run.unsure:
            link.orders.send(link.stores, lambda: run.ask(link.sealed), self._asked)
        else:
            self._asked(run)

    def _asked(self, run: SharedRun) -> None:
        """What is there is known: read back what lies in slots, in an order that names them.
        What was found bad since the question is written over."""
        link = self._link
        run.there = {i for i in run.there if not self._was_bad(run.items[i])}
        if run.error is not None or run.cancelled:
            self._landed(run)
            return
        run.take_callers()
        if run.sources:
            link.orders.send(link.sources, run.read_back, self._send, reads=run.sources)
        else:
            self._send(run)

    def _send(self, run: SharedRun) -> None:
        link = self._link
        if run.ready and not run.cancelled:
            link.orders.send(link.stores, lambda: run.send(link.sealed, link.clock), self._landed)
        else:
            self._landed(run)

    def _was_bad(self, item: Pending) -> bool:
        entry = self._link.presence.find(item.block.key, self._link.clock())
        return entry is not None and entry.reason not in (None, Reason.ABSENT)

    def _staged(self, items: Sequence[Pending]) -> list[memoryview]:
        """A buffer for each item, in memory that is made at the first use and kept."""
        width = -(-self._link.config.block_bytes // _PAGE_BYTES) * _PAGE_BYTES
        if self._staging is None:
            self._staging = memoryview(aligned_buffer(width * self._link.config.run_blocks))
        sizes = [len(item.block.payload) for item in items]
        assert max(sizes) <= width, "a block is not larger than block_bytes"
        return [self._staging[i * width : i * width + size] for i, size in enumerate(sizes)]

    def _landed(self, run: SharedRun) -> None:
        link = self._link
        self._run = None
        why = Reason.CLOSED if run.cancelled else Reason.STALE
        if run.error is not None:
            why = self._why = reason_of(run.error)
            link.tell_trips(self._why)
        done = run.stored | run.there
        names, now_s = run.names, link.clock()
        kept = {i for i in done if names[i].namespace not in run.cleared}
        link.presence.there([names[i] for i in kept & run.there], now_s)
        link.presence.stored([names[i] for i in kept & run.stored], now_s)
        self.drop([name for name in run.names if name.namespace in run.cleared])
        self._tell_stored(run)
        for i, item in enumerate(run.items):
            if i in done:
                self._queue.ended(item.block.key)
                item.release()
            else:
                self._give_up(item, why)
        self._pump()

    def _tell_stored(self, run: SharedRun) -> None:
        if run.stored:
            self._link.observer(
                Stored(
                    tier=self._link.name,
                    blocks=len(run.stored),
                    size_bytes=run.size_bytes(run.stored),
                    seconds=run.seconds,
                )
            )

    def _start_clearing(self, clearing: SharedClearing) -> None:
        self._clearing = clearing

        def job() -> Emptied | TierError:
            try:
                return self._link.sealed.clear(clearing.namespace)
            except TierError as error:
                return error

        self._link.orders.send(
            self._link.stores, job, lambda result: self._cleared(clearing, result)
        )

    def _cleared(self, clearing: SharedClearing, result: Emptied | TierError) -> None:
        self._clearing = None
        self._link.presence.forget(clearing.namespace)
        if not clearing.done:
            self._clearings.remove(clearing)
            if isinstance(result, Emptied):
                clearing.result = result
            else:
                clearing.error = result
        if isinstance(result, TierError):
            reason = reason_of(result)
            self._link.observer(
                Degraded(tier=self._link.name, reason=reason, detail="clearing failed")
            )
        self._pump()

    def _skip_where(self, chosen: Callable[[Pending], bool], reason: Reason) -> None:
        for item in self._queue.take(len(self._queue)):
            if chosen(item):
                self._give_up(item, reason)
            else:
                self._queue.add(item)

    def _give_up(self, item: Pending, reason: Reason) -> None:
        """An item that was queued will not be stored."""
        self._queue.ended(item.block.key)
        self._skip(item, reason)

    def _skip(self, item: Pending, reason: Reason) -> None:
        self._link.observer(Skipped(tier=self._link.name, blocks=1, reason=reason))
        item.release()
