"""Building a store from sizes and directories."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pagoda.core.errors import CapacityError
from pagoda.store.executor import Runtime
from pagoda.store.store import Store, StoreConfig
from pagoda.tiers.drive import DriveConfig, DriveTier
from pagoda.tiers.host import HostTier
from pagoda.tiers.port import Tier
from pagoda.tiers.sealed import SealedTier

_log = logging.getLogger("pagoda.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """Which tiers to open, for blocks of `block_bytes`. `host_bytes` 0 and `drive` None leave
    a tier out."""

    block_bytes: int
    host_bytes: int
    drive: DriveConfig | None
    config: StoreConfig


def open_store(plan: StorePlan, runtime: Runtime) -> Store:
    """Open the tiers, take their directories' locks and rebuild the index. Raises TierError."""
    tiers: list[Tier] = []
    if plan.host_bytes:
        slots = plan.host_bytes // plan.block_bytes
        if slots == 0:
            raise CapacityError(
                f"host.capacity of {plan.host_bytes} bytes holds no block of {plan.block_bytes}",
                tier=HostTier.name,
                asked_bytes=plan.block_bytes,
                limit_bytes=plan.host_bytes,
                remedy="raise host.capacity, or set it to 0 to leave the tier out",
            )
        tiers.append(HostTier(slots=slots, slot_bytes=plan.block_bytes))
    if plan.drive is not None:
        tiers.append(_open_drive(plan.drive))
    store = Store([SealedTier(tier) for tier in tiers], runtime=runtime, config=plan.config)
    try:
        store.rebuild()
    except BaseException:
        for tier in tiers:  # a failed start leaves no directory locked
            tier.close()
        raise
    return store


def _open_drive(config: DriveConfig) -> DriveTier:
    drive = DriveTier(config)
    how = "past the page cache" if drive.direct else "through the page cache"
    _log.info("drive %s: %d slots, I/O %s", drive.path, drive.geometry.slots, how)
    if not drive.direct and config.direct == "auto":
        _log.warning("%s has no O_DIRECT here: reads and writes are buffered", drive.path)
    return drive
