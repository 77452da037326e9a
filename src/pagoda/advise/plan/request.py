"""What a plan is asked for: model, GPUs, settings, load, and the tiers below the device."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pagoda.advise.plan.economics import Drive, Tier
from pagoda.advise.plan.facts import GIB, GpuFacts, Load, ModelFacts
from pagoda.advise.plan.links import Efficiency, pcie_bytes_per_s
from pagoda.advise.plan.schedule import DEFAULT_TARGET
from pagoda.advise.plan.throughput import Stalls
from pagoda.core.errors import SettingsError
from pagoda.core.sizing import Parallel

_HOST_LATENCY_S = 50e-6
_DRIVE_LATENCY_S = 200e-6
_REMOTE_LATENCY_S = 1e-3


@dataclass(frozen=True, kw_only=True)
class Tiers:
    """What lies below the device: pinned host memory, drives, a remote store.

    `write_share` is the part of new KV that is written to drives (1: all of it), kept for
    `retain_hours`.
    """

    host_bytes: float = 0.0
    drives: int = 0
    drive: Drive = field(default_factory=Drive)
    drive_pcie: tuple[int, int] = (4, 4)
    write_share: float = 1.0
    retain_hours: float = 1.0
    remote_bytes: float = 0.0
    network_gbit: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the reader asked for. `parallel` None lets the planner choose."""

    model: ModelFacts
    gpu: GpuFacts
    gpus: int = 1
    parallel: Parallel | None = None
    kv_dtype: str | None = None
    block_tokens: int = 16
    max_model_len: int | None = None
    max_batched_tokens: int = 8192
    speculative_tokens: int = 0
    utilization: float = 0.9
    reserve_bytes: int = 2 * GIB
    occupancy: float = DEFAULT_TARGET
    max_requests: int = 1024
    decode_limit_s: float | None = None
    load: Load = field(default_factory=Load)
    stalls: Stalls = field(default_factory=Stalls)
    tiers: Tiers = field(default_factory=Tiers)
    efficiency: Efficiency = field(default_factory=Efficiency)

    def __post_init__(self) -> None:
        for key, low, high in (("utilization", 0.0, 1.0), ("occupancy", 0.0, 1.0)):
            if not low < getattr(self, key) <= high:
                raise SettingsError(f"{key} must lie in (0, 1]", key=key, source="flags")
        if self.gpus < 1:
            raise SettingsError("at least one GPU is needed", key="gpus", source="flags")
        longest = self.max_model_len or self.model.max_context
        asked = self.load.input_tokens + self.load.output_tokens
        if asked > longest:
            raise SettingsError(
                f"the load's mean request has {asked:,.0f} tokens, the longest allowed {longest:,}",
                key="max_model_len",
                source=self.load.source,
                remedy="a shorter load (--input-tokens, --output-tokens) or a larger "
                "--max-model-len",
            )


def tiers_below(gpu: GpuFacts, tiers: Tiers, share: float) -> list[Tier]:
    """Return the tiers below the device; `share` is the part of a link's rate that is reached."""
    rank_link = pcie_bytes_per_s(gpu.pcie_generation, gpu.pcie_lanes) * share
    pcie = f"PCIe {gpu.pcie_generation}.0 x{gpu.pcie_lanes} a rank"
    found = []
    if tiers.host_bytes:
        found.append(
            Tier(
                name="host",
                capacity_bytes=tiers.host_bytes,
                read=math.inf,
                rank_link=rank_link,
                latency_s=_HOST_LATENCY_S,
                link=pcie,
            )
        )
    if tiers.drives:
        each = min(tiers.drive.read, pcie_bytes_per_s(*tiers.drive_pcie) * share)
        found.append(
            Tier(
                name="drive",
                capacity_bytes=tiers.drives * tiers.drive.capacity_bytes,
                read=tiers.drives * each,
                rank_link=rank_link,
                latency_s=_DRIVE_LATENCY_S,
                link=f"{tiers.drives} NVMe of {each / 1e9:.1f} GB/s",
            )
        )
    if tiers.network_gbit:
        found.append(
            Tier(
                name="remote",
                capacity_bytes=tiers.remote_bytes,
                read=tiers.network_gbit * 1e9 / 8 * share,
                rank_link=rank_link,
                latency_s=_REMOTE_LATENCY_S,
                link=f"network {tiers.network_gbit:g} Gbit/s",
            )
        )
    return found
