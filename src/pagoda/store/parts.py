"""What a store is made of, and how its parts hang together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pagoda.core.admission import REGISTRY as ADMISSIONS
from pagoda.core.admission import Admission, Everything
from pagoda.core.policy import DEFAULT, DRIVE_DEFAULT, REGISTRY
from pagoda.core.suspects import Suspects
from pagoda.store.checks import CheckPlan, Checks
from pagoda.store.erasing import Eraser
from pagoda.store.executor import Runtime
from pagoda.store.gate import Gate
from pagoda.store.health import Care, Examiner
from pagoda.store.level import Level
from pagoda.store.orders import Orders
from pagoda.store.quarantine import Bars, Quarantine
from pagoda.store.queue import QueueLimits
from pagoda.store.rank import Rank
from pagoda.store.reader import Reader
from pagoda.store.scrub import Scrubber, ScrubPlan
from pagoda.store.shared import SharedConfig, SharedLevel
from pagoda.store.wear import Wear
from pagoda.store.writer import Hooks, Writer
from pagoda.tiers.remote.breaker import GuardedShared
from pagoda.tiers.remote.sealed import SealedShared
from pagoda.tiers.sealed import SealedTier


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Deadlines in seconds; `queue_bytes` bounds what waits to be written in each level. By name:
    the policies of tiers in memory and on drives, and what is admitted to drives."""

    restore_deadline_s: float = 2.0
    write_deadline_s: float = 30.0
    queue_bytes: int = 256 << 20
    policy: str = DEFAULT
    drive_policy: str = DRIVE_DEFAULT
    admission: str = "all"
    scrub: ScrubPlan = field(default_factory=ScrubPlan)
    check: CheckPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """A shared store: sealed values over a guarded client, and the bounds of its use."""

    sealed: SealedShared
    guard: GuardedShared
    config: SharedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """By tier, what limits the writing to a medium and how to look at its health; a tier
    without them is memory."""

    wears: Mapping[str, Wear]
    cares: Mapping[str, Care]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A store's parts. The levels are those of the ranks, fastest first; all parts send their
    I/O through `orders`, and share `suspects`, the keys whose blocks were bad of late, and
    `quarantine`, the namespaces that nothing is read of or written to."""

    ranks: tuple[Rank, ...]
    levels: tuple[Level, ...]
    orders: Orders
    suspects: Suspects
    quarantine: Quarantine
    checks: Checks
    shared: SharedLevel | None
    eraser: Eraser
    reader: Reader
    writer: Writer
    scrubber: Scrubber
    examiner: Examiner


def assemble(  # noqa: PLR0913 - the tiers, and one keyword for each kind of facts about them
    tiers: Sequence[Sequence[SealedTier]],
    *,
    runtime: Runtime,
    config: StoreConfig,
    media: Media,
    shared: SharedParts | None,
    quarantine: Quarantine,
) -> Parts:
    """The parts of a store over ranks of tiers, fastest first. Touches no medium."""
    ranks = tuple(_rank(some, runtime, config, media) for some in tiers)
    levels = tuple(level for rank in ranks for level in rank.levels)
    names = [level.name for level in levels]
    assert len(names) == len(set(names)), f"two tiers have one name: {names}"
    orders = Orders(runtime)
    suspects = Suspects()
    beneath = _shared_level(shared, runtime, orders, quarantine.bars)
    checks = Checks(levels, beneath, quarantine, runtime=runtime, orders=orders)
    checks.start(config.check, most_bytes=config.queue_bytes, deadline_s=config.write_deadline_s)
    eraser = Eraser(orders, clock=runtime.clock, deadline_s=config.write_deadline_s)
    return Parts(
        ranks=ranks,
        levels=levels,
        orders=orders,
        suspects=suspects,
        quarantine=quarantine,
        checks=checks,
        shared=beneath,
        eraser=eraser,
        reader=Reader(
            levels,
            runtime=runtime,
            orders=orders,
            erase=eraser.erase,
            suspects=suspects,
            quarantine=quarantine,
            shared=beneath,
        ),
        writer=Writer(
            [Gate(rank, _admission(rank, config), runtime.observer) for rank in ranks],
            runtime=runtime,
            orders=orders,
            hooks=Hooks(
                withdraw=eraser.withdraw,
                stored=suspects.clear,
                bars=quarantine.bars,
                beyond=beneath.offer if beneath else None,
            ),
            limits=QueueLimits(size_bytes=config.queue_bytes, wait_s=config.write_deadline_s),
        ),
        scrubber=Scrubber(
            levels, runtime=runtime, orders=orders, erase=eraser.erase, plan=config.scrub
        ),
        examiner=Examiner(levels, runtime=runtime, orders=orders, cares=media.cares),
    )


def _rank(tiers: Sequence[SealedTier], runtime: Runtime, config: StoreConfig, media: Media) -> Rank:
    return Rank([_level(tier, runtime, config, media) for tier in tiers])


def _level(tier: SealedTier, runtime: Runtime, config: StoreConfig, media: Media) -> Level:
    memory = tier.name not in media.wears and tier.name not in media.cares
    policy = REGISTRY[config.policy if memory else config.drive_policy]
    return Level(
        tier,
        policy(tier.geometry.slots),
        runtime.observer,
        wear=media.wears.get(tier.name),
        memory=memory,
    )


def _admission(rank: Rank, config: StoreConfig) -> Admission:
    """Only what wears is spared writes."""
    if all(level.memory for level in rank.levels):
        return Everything()
    return ADMISSIONS[config.admission](sum(level.state.slots for level in rank.levels))


def _shared_level(
    parts: SharedParts | None, runtime: Runtime, orders: Orders, bars: Bars
) -> SharedLevel | None:
    if parts is None:
        return None
    return SharedLevel(
        parts.sealed, parts.guard, runtime=runtime, orders=orders, config=parts.config, bars=bars
    )
