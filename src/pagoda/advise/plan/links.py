"""How fast bytes move: PCIe by generation and lanes, NVLink, collectives over them."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.advise.plan.facts import GpuFacts
from pagoda.core.errors import SettingsError

# Raw bits a second and lane, times the share that is payload after line coding.
# Source: PCI Express base specifications; protocol headers take 5 to 15 % more.
_PCIE_LANE_BITS = {
    1: 2.5e9 * 8 / 10,
    2: 5e9 * 8 / 10,
    3: 8e9 * 128 / 130,
    4: 16e9 * 128 / 130,
    5: 32e9 * 128 / 130,
    6: 64e9 * 236 / 256,
}


def pcie_bytes_per_s(generation: int, lanes: int) -> float:
    """Return a PCIe link's payload rate in one direction, before protocol headers."""
    if generation not in _PCIE_LANE_BITS or lanes not in {1, 2, 4, 8, 16}:
        raise SettingsError(
            f"PCIe {generation}.0 x{lanes} does not exist",
            key="pcie",
            source="link",
            remedy="generations 1 to 6, lanes 1, 2, 4, 8 or 16",
        )
    return _PCIE_LANE_BITS[generation] * lanes / 8


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """The shares of the peaks that kernels reach: assumptions, to be replaced by measurements.

    Typical of tuned engines at serving sizes; `collective_latency_s` is the floor of one
    small all-reduce, by link.
    """

    compute: float = 0.55
    memory: float = 0.75
    link: float = 0.75
    nvlink_latency_s: float = 10e-6
    pcie_latency_s: float = 25e-6
    network_latency_s: float = 50e-6


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """The link between tensor-parallel ranks: name, bytes a second one way, latency."""

    name: str
    bandwidth: float
    latency_s: float

    def all_reduce_s(self, size_bytes: float, ranks: int) -> float:
        """Return the time of a ring all-reduce of `size_bytes` over `ranks`.

        Each rank sends 2 (n - 1) / n of the message; nothing for one rank.
        """
        if ranks == 1:
            return 0.0
        return self.latency_s + 2 * (ranks - 1) / ranks * size_bytes / self.bandwidth


def fabric_of(gpu: GpuFacts, efficiency: Efficiency) -> Fabric:
    """Return what joins GPUs in one host: NVLink (half its marketed rate one way) or PCIe."""
    if gpu.nvlink:
        return Fabric(
            name="NVLink",
            bandwidth=gpu.nvlink / 2 * efficiency.link,
            latency_s=efficiency.nvlink_latency_s,
        )
    return Fabric(
        name=f"PCIe {gpu.pcie_generation}.0 x{gpu.pcie_lanes}",
        bandwidth=pcie_bytes_per_s(gpu.pcie_generation, gpu.pcie_lanes) * efficiency.link,
        latency_s=efficiency.pcie_latency_s,
    )


def network_fabric(gbit_per_s: float, efficiency: Efficiency) -> Fabric:
    """Return the link between hosts."""
    return Fabric(
        name=f"network {gbit_per_s:g} Gbit/s",
        bandwidth=gbit_per_s * 1e9 / 8 * efficiency.link,
        latency_s=efficiency.network_latency_s,
    )
