"""A store over memory and a pool of breakable drives, stepped by hand."""

from __future__ import annotations

from collections.abc import Sequence

from store_harness import SIZE, Harness, Named

from pagoda.core.budget import Account, Endurance, WriteBudget, new_account
from pagoda.core.errors import TierError
from pagoda.core.identity import Key
from pagoda.machine.smart import DriveHealth
from pagoda.store.executor import Job, Lane
from pagoda.store.health import Care, Space
from pagoda.store.level import Level
from pagoda.store.wear import Wear
from pagoda.testing.executor import SteppedExecutor
from pagoda.testing.faults import FaultyTier
from pagoda.tiers.remote.port import SharedTier
from pagoda.tiers.sealed import SealedTier

GIB = 1 << 30
NO_LIMIT = Endurance()


class Drive:
    """A breakable medium, what it says of itself, and its write budget's account."""

    def __init__(self, name: str, slots: int, endurance: Endurance) -> None:
        self.tier = FaultyTier(Named(name, slots))
        self.endurance = endurance
        self.account: Account | None = None
        self.ledger_error: TierError | None = None
        self.space: Space | TierError = Space(free_bytes=GIB, floor_bytes=GIB // 2)
        self.health = DriveHealth(problem="not asked for")
        self.budget: WriteBudget | None = None

    def wear(self, *, now_s: float, now_ms: int) -> Wear:
        """The budget as a start of the process finds it."""
        account = self.account or new_account(self.endurance, now_ms=now_ms)
        self.budget = WriteBudget(self.endurance, account, now_s=now_s, now_ms=now_ms)
        return Wear(self.budget, self._keep)

    def care(self) -> Care:
        """Space and health as they are set."""
        return Care(space=self._look, health=lambda: self.health)

    def _look(self) -> Space:
        if isinstance(self.space, TierError):
            raise self.space
        return self.space

    def _keep(self, account: Account) -> None:
        if self.ledger_error is not None:
            raise self.ledger_error
        self.account = account


class Pool(Harness):
    """Memory of `upper` blocks above drives of `slots` blocks each; `upper` 0 leaves it out.

    `endurance` limits writing; `looked_after` has the store look at space and health.
    """

    def __init__(
        self,
        *,
        drives: int = 3,
        slots: int = 16,
        upper: int = 64,
        endurance: Endurance = NO_LIMIT,
        looked_after: bool = False,
        seed: int = 0,
        admission: str = "all",
        shared: SharedTier | None = None,
    ) -> None:
        self.drives = [Drive(f"drive{i}", slots, endurance) for i in range(drives)]
        self.looked_after = looked_after
        super().__init__(upper=upper, lower=0, seed=seed, admission=admission, shared=shared)

    def ranks(self) -> list[list[SealedTier]]:
        above = [[SealedTier(self.upper)]] if self.upper.geometry.slots else []
        return [*above, [SealedTier(drive.tier) for drive in self.drives]]

    def care(self) -> dict[str, object]:
        now_s, now_ms = self.clock(), self.clock.wall_ms()
        return super().care() | {
            "wears": {d.tier.name: d.wear(now_s=now_s, now_ms=now_ms) for d in self.drives},
            "cares": {d.tier.name: d.care() for d in self.drives} if self.looked_after else {},
        }

    def level(self, number: int) -> Level:
        """The store's side of a drive."""
        name = f"drive{number}"
        return next(level for level in self.store.levels() if level.name == name)

    def where(self, keys: Sequence[Key]) -> list[set[int]]:
        """Which drives hold each key."""
        drives = range(len(self.drives))
        return [{i for i in drives if self.level(i).state.slot_of(key) is not None} for key in keys]

    def blocks(self) -> list[int]:
        """How many blocks each drive holds."""
        return [self.level(i).state.published_count() for i in range(len(self.drives))]

    def forget_memory(self) -> None:
        """Restart the process: memory is empty, the drives are as they were left."""
        self.upper = FaultyTier(Named("upper", self.upper.geometry.slots))
        self.open()

    def run_of(self, blocks: int) -> None:
        """Have one order of writing take that many blocks, as larger blocks would."""
        for level in self.store.levels():
            level.run_blocks = blocks

    def hang(self, tier: str) -> list[tuple[Lane, Job]]:
        """From now on, orders to a tier are not carried out; they gather in the list."""
        held: list[tuple[Lane, Job]] = []
        submit = SteppedExecutor.submit

        def divert(lane: Lane, job: Job) -> None:
            if lane.tier == tier:
                held.append((lane, job))
            else:
                submit(self.executor, lane, job)

        self.executor.submit = divert
        self._hanging = held
        return held

    def unhang(self) -> None:
        """What hung goes on."""
        del self.executor.submit
        for lane, job in self._hanging:
            self.executor.submit(lane, job)

    def time_passes_while_waiting(self) -> None:
        """Waiting for an order takes as long as it may when none can be carried out."""

        def wait(timeout_s: float) -> None:
            if not self.executor.step():
                self.clock.advance(timeout_s)

        self.executor.wait = wait

    def pass_time(self, seconds: float) -> None:
        """Let time pass and everything due happen."""
        self.clock.advance(seconds)
        self.settle()


__all__ = ["SIZE", "Drive", "Pool"]
