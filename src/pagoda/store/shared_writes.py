"""Writing to a shared store in the background, and clearing a namespace there.

One run of blocks is on its way at a time. What is known to be there is not sent; what is not
known is asked for first, unless a copy was bad a short while ago: then the store's word that
it has one counts for nothing, and the good block is written over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagoda.core.errors import TierError, TierTimeout
from pagoda.core.events import Degraded, Reason, Skipped, Stored
from pagoda.core.identity import Key, NamespaceId
from pagoda.machine.buffers import aligned_buffer
from pagoda.seal.header import Seal
from pagoda.store.offers import Offer, OfferQueue
from pagoda.store.shared_link import Link
from pagoda.tiers.remote.sealed import Cleared, Name
from pagoda.tiers.sealed import reason_of

_NO_GENERATION = 0  # a name has none


@dataclass(slots=True, eq=False)
class Clearing:
    """A namespace being cleared: `result` or `error` once it is done."""

    namespace: NamespaceId
    deadline_s: float
    result: Cleared | None = None
    error: TierError | None = None

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks on their way. `sure` are keys to write without asking; `cleared` namespaces that
    were cleared meanwhile."""

    offers: list[Offer]
    sure: set[Key]
    cleared: set[NamespaceId] = field(default_factory=set)
    stored: list[Offer] = field(default_factory=list)
    there: list[Offer] = field(default_factory=list)
    error: TierError | None = None
    seconds: float = 0.0
    keys: frozenset[Key] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = frozenset(offer.block.key for offer in self.offers)


class SharedWrites:
    """The write half. All methods run in the owner's thread, jobs in I/O threads."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._queue = OfferQueue(link.config.queue_bytes)
        self._run: _Run | None = None
        self._clearings: list[Clearing] = []
        self._clearing: Clearing | None = None  # the one under way
        self._staging: memoryview | None = None
        self._why = Reason.IO_ERROR  # of the last failed write

    @property
    def idle(self) -> bool:
        return not self._queue and self._run is None and not self._clearings

    def offer(self, offers: Sequence[Offer]) -> None:
        """Queue blocks; what is there already, or does not fit the queue, is released now."""
        for offer in offers:
            self._enqueue(offer)
        self._pump()

    def clear(self, namespace: NamespaceId) -> Clearing:
        """Delete a namespace's blocks, once the write under way has landed, and list what is
        left. Nothing of it is found from now on; until it is done nothing is written."""
        link = self._link
        clearing = Clearing(namespace, link.clock() + link.config.clear_deadline_s)
        link.presence.forget(namespace)
        if self._run is not None:
            self._run.cleared.add(namespace)
        self._skip_where(lambda offer: offer.block.namespace == namespace, Reason.CLOSED)
        self._clearings.append(clearing)
        self._pump()
        return clearing

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
        """Forget what is queued."""
        self._skip_where(lambda _: True, Reason.CLOSED)

    def expire(self) -> None:
        """Drop what has waited too long."""
        now_s = self._link.clock()
        for offer in self._queue.take_late(now_s):
            self._skip(offer, Reason.TIMEOUT)
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

    def check_invariants(self) -> None:
        """The queue adds up, and nothing waits that is on its way."""
        self._queue.check_invariants()
        flying = self._run.offers if self._run is not None else []
        assert not any(offer.block.key in self._queue for offer in flying), "a block twice"

    def _enqueue(self, offer: Offer) -> None:
        link, key = self._link, offer.block.key
        now_s = link.clock()
        if link.presence.name_of(key, now_s) is not None or self._waits(key):
            offer.release()
        elif not link.guard.writes.admits():
            self._skip(offer, self._why)
        elif not self._queue.fits(offer):
            self._skip(offer, Reason.BUSY)
        else:
            offer.until_s = now_s + link.config.write_deadline_s
            self._queue.push(offer)

    def _waits(self, key: Key) -> bool:
        """Whether a block is queued or on its way."""
        flying = self._run.keys if self._run is not None else ()
        return key in self._queue or key in flying

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
        offers = self._queue.take(self._link.config.run_blocks)
        run = self._run = _Run(offers, {o.block.key for o in offers if self._was_bad(o)})
        self._link.orders.send(self._link.stores, lambda: self._carry_out(run), self._landed)

    def _was_bad(self, offer: Offer) -> bool:
        entry = self._link.presence.find(offer.block.key, self._link.clock())
        return entry is not None and entry.reason not in (None, Reason.ABSENT)

    def _carry_out(self, run: _Run) -> _Run:
        """In an I/O thread: ask, read back what lies in a slot, seal and send."""
        started_s = self._link.clock()
        try:
            missing = self._missing(run)
            ready = self._payloads(missing)
            if ready:
                self._link.sealed.store([self._seal(o) for o, _ in ready], [p for _, p in ready])
            run.stored = [offer for offer, _ in ready]
        except TierError as error:
            run.error = error
        run.seconds = self._link.clock() - started_s
        return run

    def _missing(self, run: _Run) -> list[Offer]:
        unsure = [offer for offer in run.offers if offer.block.key not in run.sure]
        found = self._link.sealed.has([offer.name for offer in unsure]) if unsure else []
        run.there = [offer for offer, there in zip(unsure, found, strict=True) if there]
        there = set(run.there)
        return [offer for offer in run.offers if offer not in there]

    def _payloads(self, offers: Sequence[Offer]) -> list[tuple[Offer, memoryview]]:
        """The bytes of each block that can still be had."""
        ready: list[tuple[Offer, memoryview]] = []
        for position, offer in enumerate(offers):
            if offer.load is None:
                ready.append((offer, offer.block.payload))
                continue
            view = self._staged(position, offer.size_bytes)
            if offer.load(view):
                ready.append((offer, view))
        return ready

    def _staged(self, position: int, size_bytes: int) -> memoryview:
        """Memory for one block of the run; made at the first use, and kept."""
        width = self._link.config.block_bytes
        assert size_bytes <= width, "a block is not larger than block_bytes"
        if self._staging is None:
            self._staging = memoryview(aligned_buffer(width * self._link.config.run_blocks))
        return self._staging[position * width : position * width + size_bytes]

    def _seal(self, offer: Offer) -> Seal:
        return offer.block.seal(generation=_NO_GENERATION, created_ms=self._link.wall_ms())

    def _landed(self, run: _Run) -> None:
        link, now_s = self._link, self._link.clock()
        self._run = None
        if run.error is not None:
            self._why = reason_of(run.error)
            link.tell_trips(self._why)
        done = {*run.stored, *run.there}
        kept = [offer.name for offer in done if offer.block.namespace not in run.cleared]
        link.presence.there(kept, now_s)
        self.drop([o.name for o in run.offers if o.block.namespace in run.cleared])
        self._tell_stored(run)
        for offer in run.offers:
            if offer in done:
                offer.release()
            else:
                self._skip(offer, self._why if run.error is not None else Reason.STALE)
        self._pump()

    def _tell_stored(self, run: _Run) -> None:
        if run.stored:
            self._link.observer(
                Stored(
                    tier=self._link.name,
                    blocks=len(run.stored),
                    size_bytes=sum(offer.size_bytes for offer in run.stored),
                    seconds=run.seconds,
                )
            )

    def _start_clearing(self, clearing: Clearing) -> None:
        self._clearing = clearing

        def job() -> Cleared | TierError:
            try:
                return self._link.sealed.clear(clearing.namespace)
            except TierError as error:
                return error

        self._link.orders.send(
            self._link.stores, job, lambda result: self._cleared(clearing, result)
        )

    def _cleared(self, clearing: Clearing, result: Cleared | TierError) -> None:
        self._clearing = None
        self._link.presence.forget(clearing.namespace)
        if not clearing.done:
            self._clearings.remove(clearing)
            if isinstance(result, Cleared):
                clearing.result = result
            else:
                clearing.error = result
        if isinstance(result, TierError):
            reason = reason_of(result)
            self._link.observer(
                Degraded(tier=self._link.name, reason=reason, detail="clearing failed")
            )
        self._pump()

    def _skip_where(self, chosen: Callable[[Offer], bool], reason: Reason) -> None:
        for offer in self._queue.take_where(chosen):
            self._skip(offer, reason)

    def _skip(self, offer: Offer, reason: Reason) -> None:
        self._link.observer(Skipped(tier=self._link.name, blocks=1, reason=reason))
        offer.release()
