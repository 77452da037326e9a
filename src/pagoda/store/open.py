"""Building a store from sizes and directories."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.core.errors import CapacityError, TierFault
from pagoda.machine.cuda import find_cuda
from pagoda.seal.envelope import PLAIN, Envelope
from pagoda.store.drives import ONE_WRITE_A_DAY, EndurancePlan, open_pool
from pagoda.store.executor import Runtime
from pagoda.store.quarantine import Quarantine
from pagoda.store.store import SharedParts, Store, StoreConfig
from pagoda.tiers.drive import DriveConfig
from pagoda.tiers.host import HostTier
from pagoda.tiers.sealed import SealedTier


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """Which tiers to open, for blocks of `block_bytes`. `host_bytes` 0, no `drives` and no
    `shared` leave a tier out; `envelope` is how blocks lie on drives, `host_pinned` ("auto", "on"
    or "off") whether memory is pinned for GPUs."""

    block_bytes: int
    host_bytes: int
    drives: tuple[DriveConfig, ...]
    config: StoreConfig
    host_pinned: str = "off"
    endurance: EndurancePlan = ONE_WRITE_A_DAY
    envelope: Envelope = PLAIN
    shared: SharedParts | None = None


def open_store(plan: StorePlan, runtime: Runtime) -> Store:
    """Open the tiers, take their directories' locks, read what is in quarantine and rebuild the
    index. Raises TierError."""
    hosts = [_open_host(plan)] if plan.host_bytes else []
    pool = open_pool(plan.drives, endurance=plan.endurance, runtime=runtime)
    try:
        memory = [SealedTier(tier) for tier in hosts]
        drives = [SealedTier(tier, plan.envelope) for tier in pool.tiers]
        store = Store(
            [rank for rank in (memory, drives) if rank],
            runtime=runtime,
            config=plan.config,
            wears=pool.wears,
            cares=pool.cares,
            shared=plan.shared,
            quarantine=Quarantine([drive.directory for drive in plan.drives]),
        )
        store.rebuild()
    except BaseException:
        pool.close()  # a failed start leaves no directory locked
        for host in hosts:
            host.close()
        raise
    return store


def _open_host(plan: StorePlan) -> HostTier:
    slots = plan.host_bytes // plan.block_bytes
    if slots == 0:
        raise CapacityError(
            f"host.capacity of {plan.host_bytes} bytes holds no block of {plan.block_bytes}",
            tier=HostTier.name,
            asked_bytes=plan.block_bytes,
            limit_bytes=plan.host_bytes,
            remedy="raise host.capacity, or set it to 0 to leave the tier out",
        )
    cuda = None if plan.host_pinned == "off" else find_cuda()
    if cuda is None and plan.host_pinned == "on":
        raise TierFault(
            "host.pinned is on, and no CUDA device can be used here",
            tier=HostTier.name,
            remedy="set host.pinned to auto or off, or look into the driver (pagoda preflight)",
        )
    return HostTier(slots=slots, slot_bytes=plan.block_bytes, cuda=cuda)
