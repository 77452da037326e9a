"""The shared store as its owner's thread uses it: everything later, nothing raised.

It stands below the last local level. Nobody owns its names, so nothing here has slots or
leases: what is remembered of it expires, what comes out of it is verified, and what fails
costs one block's recomputation and is left alone for a while. See docs/adr/0009.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.errors import TierError
from pagoda.core.events import Degraded
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.outcome import Miss, Outcome
from pagoda.store.executor import Runtime
from pagoda.store.orders import Orders
from pagoda.store.quarantine import Bars
from pagoda.store.queue import Pending
from pagoda.store.restore import Restore
from pagoda.store.shared_link import Link, SharedConfig
from pagoda.store.shared_reads import Probe, SharedReads
from pagoda.store.shared_writes import SharedClearing, SharedWrites
from pagoda.tiers.remote.breaker import GuardedShared
from pagoda.tiers.remote.sealed import Name, SealedShared
from pagoda.tiers.sealed import reason_of


class SharedLevel:
    """Probing, fetching, offering and clearing. All methods run in the owner's thread.

    `sealed` is over `guard`; `orders` are the store's, so that its `poll` takes in what ends
    here too. Nothing is read of or written to a namespace that `bars` names.
    """

    def __init__(  # noqa: PLR0913 - the store, the world, and what bounds the use of both
        self,
        sealed: SealedShared,
        guard: GuardedShared,
        *,
        runtime: Runtime,
        orders: Orders,
        config: SharedConfig,
        bars: Bars,
    ) -> None:
        self._link = Link(sealed, guard, runtime=runtime, orders=orders, config=config, bars=bars)
        self._writes = SharedWrites(self._link)
        self._reads = SharedReads(self._link, drop=self._writes.drop)
        self.name = sealed.name

    # Reading.

    def known_prefix(self, keys: Sequence[Key]) -> int:
        """How many leading blocks should be there, as far as is remembered. Asks nobody."""
        return self._reads.known_prefix(keys)

    def probe(self, namespace: NamespaceId, keys: Sequence[Key]) -> Probe:
        """Ask which blocks of a prefix are there; `keys` begin behind what local tiers hold."""
        return self._reads.probe(namespace, keys)

    def fetch(self, restore: Restore, positions: range) -> None:
        """Restore a run of blocks; those that are not known to be there are misses at once."""
        self._reads.fetch(restore, positions)

    def read(self, namespace: NamespaceId, key: Key, into: memoryview) -> Outcome:
        """Read one block into a buffer, now. In an I/O thread; blocks on I/O."""
        name = Name(namespace, key)
        outcomes = self._link.sealed.load([name], [into], claim=lambda: True)
        return outcomes[0] if outcomes else Miss()

    # Writing.

    def offer(self, items: Sequence[Pending]) -> None:
        """Store blocks in the background; each is released exactly once, in the owner's thread.
        A block whose bytes lie in a level's slot is read back from there, verified."""
        self._writes.offer(items)

    def clear(self, namespace: NamespaceId) -> SharedClearing:
        """Delete a namespace and verify it by a listing. Other nodes may go on writing."""
        return self._writes.clear(namespace)

    def bar(self, namespace: NamespaceId) -> None:
        """A namespace is in quarantine: what is queued of it is not sent, and what is being sent
        is deleted again."""
        self._writes.bar(namespace)

    # Progress.

    def expire(self) -> None:
        """Give up on what is late."""
        self._reads.expire()
        self._writes.expire()

    def next_deadline_s(self) -> float | None:
        """When `expire` has something to do."""
        deadlines = (self._reads.next_deadline_s(), self._writes.next_deadline_s())
        return min((at_s for at_s in deadlines if at_s is not None), default=None)

    @property
    def idle(self) -> bool:
        """Nothing is queued or awaited. Orders that were given up may still be under way."""
        return self._reads.idle and self._writes.idle

    def cancel(self) -> None:
        """Forget what is queued; what is under way goes on."""
        self._writes.cancel()

    def close(self) -> None:
        """Let go of the store. Nothing may be under way."""
        try:
            self._link.sealed.tier.close()
        except TierError as error:
            self._link.observer(
                Degraded(tier=self.name, reason=reason_of(error), detail=error.message)
            )


__all__ = ["Probe", "SharedClearing", "SharedConfig", "SharedLevel"]
