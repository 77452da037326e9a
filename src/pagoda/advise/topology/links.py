"""Link classes between two devices of one host, tightest first, as `nvidia-smi topo -m` names them.

Bandwidths are nominal, in gigabytes (1e9 bytes) a second and one direction. They rank
links and feed the slowdown estimate; they are no measurement of this host.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = [
    "NVLINK_GBS",
    "PCIE_CLASSES",
    "PCIE_GBS",
    "SELF",
    "Fabric",
    "Link",
    "bandwidth_gbs",
    "note",
    "parse_link",
]

SELF = "X"
PCIE_CLASSES = ("PIX", "PXB", "PHB", "NODE")

# One NVLink, one direction: NVLink 2, 3 and 4 (Volta to Hopper).
NVLINK_GBS = 25.0

# PCIe 4.0 x16 gives 32 GB/s on paper and about 26 to a peer below one switch. Paths
# through the processor lose more; the socket interconnect is shared by all of them.
PCIE_GBS = {"PIX": 26.0, "PXB": 24.0, "PHB": 20.0, "NODE": 18.0, "SYS": 10.0}

_NOTES = {
    "PIX": "at most one PCIe switch: peers copy directly",
    "PXB": "several PCIe switches below one root port: peers copy directly",
    "PHB": "through the processor's host bridge: direct copies may be refused",
    "NODE": "between host bridges of one NUMA node: direct copies may be refused",
    "SYS": "through the socket interconnect: copies usually bounce through host memory",
    SELF: "the device itself",
}


class Fabric(enum.Enum):
    """What carries a link: NVLink, PCIe inside one NUMA node, or the socket interconnect."""

    NVLINK = "NVLink"
    PCIE = "PCIe"
    SYSTEM = "socket interconnect"


@dataclass(frozen=True, slots=True)
class Link:
    """One cell of the matrix: a class and, for NVLink, the number of bonded links."""

    kind: str
    width: int = 0

    @property
    def name(self) -> str:
        """The class as nvidia-smi prints it, such as `NV18` or `PIX`."""
        return f"NV{self.width}" if self.kind == "NV" else self.kind

    @property
    def fabric(self) -> Fabric:
        """The medium that the link runs over."""
        if self.kind == "NV":
            return Fabric.NVLINK
        return Fabric.SYSTEM if self.kind == "SYS" else Fabric.PCIE


def parse_link(text: str) -> Link:
    """Turn one vocabulary word, such as `NV18`, into a link; drivers before 384 say SOC for SYS."""
    if text.startswith("NV"):
        return Link("NV", int(text[2:]))
    return Link("SYS" if text == "SOC" else text)


def bandwidth_gbs(link: Link, nvlink_gbs: float = NVLINK_GBS) -> float:
    """Nominal bandwidth of a link, in GB/s and one direction."""
    return link.width * nvlink_gbs if link.kind == "NV" else PCIE_GBS[link.kind]


def note(link: Link, nvlink_gbs: float = NVLINK_GBS) -> str:
    """One line that says what a link class is and about how fast."""
    if link.kind == "NV":
        what = f"{link.width} bonded NVLink{'s' if link.width > 1 else ''}"
        return f"{what}, {bandwidth_gbs(link, nvlink_gbs):.0f} GB/s each way (nominal)"
    if link.kind == SELF:
        return _NOTES[SELF]
    return f"{_NOTES[link.kind]}, about {PCIE_GBS[link.kind]:.0f} GB/s each way (PCIe 4.0 x16)"
