"""What reading from and writing to a shared store have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pagoda.core.events import Degraded, Reason
from pagoda.store.executor import Kind, Lane, Runtime
from pagoda.store.orders import Orders
from pagoda.store.presence import Memory, Presence
from pagoda.store.quarantine import Bars
from pagoda.tiers.remote.breaker import Breaker, GuardedShared
from pagoda.tiers.remote.sealed import SealedShared


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedConfig:
    """Bounds of a shared store's use.

    `probe_blocks` is how many blocks one probe asks for at most, `run_bytes` what one order
    moves, and `queue_bytes` may wait to be written.
    """

    block_bytes: int
    probe_deadline_s: float = 0.25
    probe_blocks: int = 512
    run_bytes: int = 32 << 20
    queue_bytes: int = 256 << 20
    clear_deadline_s: float = 60.0
    memory: Memory = field(default_factory=Memory)

    @property
    def run_blocks(self) -> int:
        """Blocks in one order."""
        return max(1, self.run_bytes // self.block_bytes)


class Link:
    """A shared store as its owner's thread knows it: sealed, guarded, and partly remembered.
    `bars` says which namespaces nothing is read of or written to."""

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
        self.bars = bars
        self.sealed = sealed
        self.guard = guard
        self.config = config
        self.orders = orders
        self.clock: Callable[[], float] = runtime.clock
        self.wall_ms: Callable[[], int] = runtime.wall_ms
        self.observer = runtime.observer
        self.presence = Presence(config.memory)
        self.name = sealed.name
        self.loads = Lane(self.name, Kind.LOAD)
        self.stores = Lane(self.name, Kind.STORE)
        self.sources = Lane(f"{self.name}-sources", Kind.LOAD)  # local: no hanging call is ahead
        self.probes = Lane(f"{self.name}-probe", Kind.LOAD)  # does not wait behind values
        self._trips = {"reads": 0, "writes": 0}

    def tell_trips(self, reason: Reason) -> None:
        """After something went wrong: say so if a breaker has opened since."""
        self._tell("reads", self.guard.reads, reason)
        self._tell("writes", self.guard.writes, reason)

    def _tell(self, what: str, breaker: Breaker, reason: Reason) -> None:
        if breaker.trips == self._trips[what]:
            return
        self._trips[what] = breaker.trips
        detail = f"{what} are paused"
        self.observer(Degraded(tier=self.name, reason=reason, detail=detail))
