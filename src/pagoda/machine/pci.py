"""PCI devices that matter to a KV cache: GPUs, NVSwitches, adapters, drives, and bridges."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pagoda.machine.tree import HostTree

__all__ = ["PciDevice", "acs_bridges", "iommu_groups", "pci_devices"]

NVIDIA = 0x10DE
_BASE = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ACS_CAPABILITY = 0x0D
# Any of these bits sends peer traffic up to the root: source validation, translation
# blocking, request redirect, completion redirect.
_ACS_REDIRECTS = 0x000D


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device with the width and speed of its link, now and at most; None where unread."""

    address: str
    vendor: int
    class_code: int
    width: int | None
    max_width: int | None
    speed: str | None
    max_speed: str | None
    numa_node: int | None

    @property
    def is_gpu(self) -> bool:
        """An NVIDIA display or 3D controller."""
        return self.vendor == NVIDIA and self.class_code >> 16 == 0x03

    @property
    def is_nvswitch(self) -> bool:
        """An NVIDIA bridge of the "other" kind, as NVSwitches show themselves."""
        return self.vendor == NVIDIA and self.class_code >> 8 == 0x0680

    @property
    def is_nvme(self) -> bool:
        """A non-volatile memory controller."""
        return self.class_code >> 8 == 0x0108

    @property
    def is_bridge(self) -> bool:
        """A PCI-to-PCI bridge."""
        return self.class_code >> 8 == 0x0604


def pci_devices(tree: HostTree) -> list[PciDevice]:
    """Every PCI device whose vendor and class can be read."""
    found = (_device(tree, name) for name in tree.names(_BASE) if _ADDRESS.fullmatch(name))
    return [device for device in found if device is not None]


def _device(tree: HostTree, name: str) -> PciDevice | None:
    vendor, class_code = (_hex(tree.text(f"{_BASE}/{name}/{key}")) for key in ("vendor", "class"))
    if vendor is None or class_code is None:
        return None
    return PciDevice(
        address=name,
        vendor=vendor,
        class_code=class_code,
        width=_width(tree, name, "current_link_width"),
        max_width=_width(tree, name, "max_link_width"),
        speed=tree.text(f"{_BASE}/{name}/current_link_speed"),
        max_speed=tree.text(f"{_BASE}/{name}/max_link_speed"),
        numa_node=tree.number(f"{_BASE}/{name}/numa_node"),
    )


def _hex(text: str | None) -> int | None:
    return int(text, 16) if text is not None and re.fullmatch(r"0x[0-9a-fA-F]{1,8}", text) else None


def _width(tree: HostTree, name: str, key: str) -> int | None:
    """Links in use; 0 and 255 mean that the device does not say."""
    width = tree.number(f"{_BASE}/{name}/{key}")
    return width if width is not None and 0 < width < 255 else None


def iommu_groups(tree: HostTree) -> int:
    """How many isolation groups the kernel made; none when no IOMMU translates."""
    return len([name for name in tree.names("sys/kernel/iommu_groups") if name.isdecimal()])


def acs_bridges(tree: HostTree, devices: list[PciDevice]) -> list[str] | None:
    """Bridges that redirect peer traffic to the root; None when their registers are unreadable.

    The extended configuration space is readable by root alone.
    """
    if not tree.live:
        text = tree.text("pagoda/acs.txt")
        return None if text is None else text.split()
    states = [_redirects(tree, d.address) for d in devices if d.is_bridge]
    if not states or all(state is None for _, state in states):
        return None
    return [address for address, state in states if state]


def _redirects(tree: HostTree, address: str) -> tuple[str, bool | None]:
    try:
        raw = (tree.root / _BASE / address / "config").read_bytes()
    except OSError:
        return address, None
    return address, acs_redirects(raw)


def acs_redirects(config: bytes) -> bool | None:
    """Read the ACS control register out of a configuration space; None when it is not there.

    Extended capabilities start at byte 256: 16 bits of id, 4 of version, 12 of next offset.
    Source: PCI Express Base Specification, "Extended Capabilities" and "ACS".
    """
    if len(config) < 4096:
        return None
    offset, seen = 0x100, set[int]()
    while 0x100 <= offset <= 4088 and offset not in seen:
        seen.add(offset)
        head = int.from_bytes(config[offset : offset + 4], "little")
        if head & 0xFFFF == _ACS_CAPABILITY:
            control = int.from_bytes(config[offset + 6 : offset + 8], "little")
            return bool(control & _ACS_REDIRECTS)
        offset = head >> 20
    return False
