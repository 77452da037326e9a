"""Opening the drives of a pool, and what limits and watches each of them.

A drive that fails like a drive (an I/O error, a time-out, a read-only file system) is left out
as long as another one opens: the cache is smaller then, and says so. Anything that the
operator has to decide (a foreign or newer file, a directory that is another engine's, sizes
that do not fit, a path that leads nowhere) is refused, whatever the other drives do.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from pagoda.core.budget import (
    Account,
    Endurance,
    WriteBudget,
    divided,
    new_account,
    unknown_account,
)
from pagoda.core.errors import TierError, TierFault, TierReadOnly, TierTimeout
from pagoda.core.events import Degraded, Reason
from pagoda.machine.smart import drive_health
from pagoda.store.executor import Runtime
from pagoda.store.health import Care, Space
from pagoda.store.ledger import Damaged, Ledger
from pagoda.store.wear import Wear
from pagoda.tiers.drive import DriveConfig, DriveTier, look
from pagoda.tiers.drive.oserrors import typed_errors
from pagoda.tiers.sealed import reason_of

_log = logging.getLogger("pagoda.store")
_DRIVE_FAULTS = {errno.EIO, errno.ENXIO, errno.ENODEV, errno.EREMOTEIO, errno.ESTALE}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndurancePlan:
    """How often a day each drive may be written as a whole (0: no limit), and how many bytes in
    all (0: no limit)."""

    writes_per_day: float = 1.0
    total_bytes: int = 0


ONE_WRITE_A_DAY = EndurancePlan()


@dataclass(slots=True)
class Pool:
    """The drives that opened, with what limits the writing to each and how to look after it."""

    tiers: list[DriveTier] = field(default_factory=list)
    wears: dict[str, Wear] = field(default_factory=dict)
    cares: dict[str, Care] = field(default_factory=dict)

    def close(self) -> None:
        """Give all directories back."""
        for tier in self.tiers:
            tier.close()


def open_pool(drives: Sequence[DriveConfig], *, endurance: EndurancePlan, runtime: Runtime) -> Pool:
    """Open every drive and take its directory's lock. Raises TierError."""
    pool = Pool()
    failed: list[TierError] = []
    configs = {config.name: config for config in _named(drives)}
    _look(list(configs.values()))
    try:
        for config in configs.values():
            _open(config, pool.tiers, failed)
        sharing = _sharing(pool.tiers)
        for tier in list(pool.tiers):
            config = configs[tier.name]
            limits = divided(_endurance(tier, endurance), sharing[tier.name])
            try:
                pool.wears[tier.name] = _wear(config, limits, runtime)
            except TierError as error:
                _leave_out(error, failed)
                pool.tiers.remove(tier)
                tier.close()
            pool.cares[tier.name] = Care(
                space=partial(_space, tier, config.free_floor_bytes),
                health=partial(drive_health, tier.path),
            )
        _require_one(pool, failed)
    except BaseException:
        pool.close()  # a failed start leaves no directory locked
        raise
    for left_out in failed:
        _log.error("a drive is left out: %s", left_out)
        runtime.observer(
            Degraded(tier=left_out.tier, reason=reason_of(left_out), detail=left_out.message)
        )
    return pool


def _look(configs: Sequence[DriveConfig]) -> None:
    """What an operator has to decide is refused before anything is written to any drive."""
    taken: Counter[int] = Counter()
    for config in configs:
        try:
            look(config, taken)
            with suppress(Damaged):
                Ledger(config.directory, tier=config.name).read()
        except TierError as error:
            _leave_out(error, [])


def _require_one(pool: Pool, failed: Sequence[TierError]) -> None:
    if failed and not pool.tiers:
        raise failed[0]


def _named(drives: Sequence[DriveConfig]) -> list[DriveConfig]:
    """One drive is "drive"; several are numbered in the order of the settings."""
    if len(drives) == 1:
        return list(drives)
    return [replace(config, name=f"{config.name}{i}") for i, config in enumerate(drives)]


def _open(config: DriveConfig, opened: list[DriveTier], failed: list[TierError]) -> None:
    try:
        drive = DriveTier(config)
    except TierError as error:
        _leave_out(error, failed)
        return
    opened.append(drive)
    how = "past the page cache" if drive.direct else "through the page cache"
    _log.info("%s is %s: %d slots, I/O %s", drive.name, drive.path, drive.geometry.slots, how)
    if not drive.direct and config.direct == "auto":
        _log.warning("%s has no O_DIRECT here: reads and writes are buffered", drive.path)


def _leave_out(error: TierError, failed: list[TierError]) -> None:
    if not _transient(error):
        raise error
    failed.append(error)


def _transient(error: TierError) -> bool:
    """Whether it is the drive that fails, not what was asked of it."""
    match error:
        case TierTimeout():
            return True
        case TierFault(errno=number):
            return number in _DRIVE_FAULTS
        case TierReadOnly():
            cause = error.__cause__
            return isinstance(cause, OSError) and cause.errno == errno.EROFS
        case _:
            return False


def _sharing(tiers: Sequence[DriveTier]) -> dict[str, int]:
    """How many of the slabs lie on the same file system as each, by tier."""
    devices: dict[str, int] = {}
    for tier in tiers:
        with typed_errors(tier.name, str(tier.path)):
            devices[tier.name] = tier.path.stat().st_dev
    counts = Counter(devices.values())
    return {name: counts[device] for name, device in devices.items()}


def _endurance(tier: DriveTier, plan: EndurancePlan) -> Endurance:
    day_bytes = None
    if plan.writes_per_day:
        with typed_errors(tier.name, str(tier.path)):
            size = os.statvfs(tier.path)
        day_bytes = int(size.f_blocks * size.f_frsize * plan.writes_per_day)
    return Endurance(day_bytes=day_bytes, total_bytes=plan.total_bytes or None)


def _wear(config: DriveConfig, limits: Endurance, runtime: Runtime) -> Wear:
    ledger = Ledger(config.directory, tier=config.name)
    now_ms = runtime.wall_ms()
    try:
        account = ledger.read() or new_account(limits, now_ms=now_ms)
    except Damaged as error:
        account = _unknown(limits, error, config.name, runtime)
    budget = WriteBudget(limits, account, now_s=runtime.clock(), now_ms=now_ms)
    return Wear(budget, ledger.keep)


def _unknown(limits: Endurance, error: Damaged, tier: str, runtime: Runtime) -> Account:
    _log.error("%s; no bytes are assumed to be left: delete it to start anew", error)
    runtime.observer(Degraded(tier=tier, reason=Reason.WORN, detail=str(error)))
    return unknown_account(limits, now_ms=runtime.wall_ms())


def _space(tier: DriveTier, floor_bytes: int) -> Space:
    with typed_errors(tier.name, str(tier.path)):
        found = os.statvfs(tier.path)
    return Space(free_bytes=found.f_bavail * found.f_frsize, floor_bytes=floor_bytes)
