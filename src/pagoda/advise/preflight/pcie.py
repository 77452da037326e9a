"""Checks of PCIe and of copies between devices: link width, IOMMU, ACS, peers, GPUDirect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pagoda.advise.preflight.check import Check
from pagoda.machine.cpus import is_virtual_machine, services
from pagoda.machine.pci import PciDevice, acs_bridges, iommu_groups, pci_devices
from pagoda.machine.software import kernel_modules
from pagoda.machine.tree import HostTree

__all__ = ["pcie_checks"]

_NO_GPU = "no NVIDIA GPU on the PCI bus"
# What `nvidia-smi topo -p2p` says where peers cannot copy.
_PEER_WORDS = {
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the topology does not support it",
    "DR": "it is disabled by a registry key",
    "NS": "it is not supported",
    "U": "the state is unknown",
}


def pcie_checks(tree: HostTree) -> Iterator[Check]:
    """All checks of links between devices."""
    devices = pci_devices(tree)
    yield _width(devices)
    yield _drive_links(devices)
    yield _iommu(tree, devices)
    yield _acs(tree, devices)
    yield _peers(tree)
    yield _gpudirect(tree, devices)
    yield _fabric(tree, devices)


def _width(devices: Sequence[PciDevice]) -> Check:
    confirm = (
        "nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv"
    )
    gpus = [device for device in devices if device.is_gpu]
    known = [(d, d.width, d.max_width) for d in gpus if d.width and d.max_width]
    if not known:
        reason = _NO_GPU if not gpus else "the GPUs do not tell their link width (a VM?)"
        return Check("pcie-width", "unknown", reason, confirm)
    narrow = [(d, now, most) for d, now, most in known if now < most]
    if not narrow:
        return Check("pcie-width", "pass", f"{len(known)} GPU(s) at full width", confirm)
    device, now, most = min(narrow, key=lambda item: item[1] / item[2])
    return Check(
        "pcie-width",
        "fail" if now * 4 <= most else "warn",
        f"GPU {device.address} runs at x{now} of x{most} ({len(narrow)} of {len(known)} GPUs): "
        f"restores from the host are {most / now:.0f} times slower than the part allows",
        confirm,
        "reseat the card, look for a riser or slot wired narrower, and for bifurcation in the BIOS",
    )


def _drive_links(devices: Sequence[PciDevice]) -> Check:
    confirm = "lspci -vv -d ::0108 | grep -E 'LnkCap:|LnkSta:'"
    drives = [d for d in devices if d.is_nvme and d.width and d.max_width]
    if not drives:
        return Check("drive-links", "unknown", "no NVMe drive tells its PCIe link", confirm)
    slow = [d for d in drives if d.width != d.max_width or _slower(d)]
    if not slow:
        return Check("drive-links", "pass", f"{len(drives)} NVMe drive(s) at full link", confirm)
    first = slow[0]
    reason = (
        f"NVMe {first.address} runs at x{first.width} {first.speed} of x{first.max_width} "
        f"{first.max_speed} ({len(slow)} of {len(drives)} drives)"
    )
    remedy = "move the drive to a slot of its width and generation"
    return Check("drive-links", "warn", reason, confirm, remedy)


def _slower(device: PciDevice) -> bool:
    now, most = (_gigatransfers(text) for text in (device.speed, device.max_speed))
    return now is not None and most is not None and now < most


def _gigatransfers(text: str | None) -> float | None:
    hit = re.match(r"(\d+(?:\.\d+)?) GT/s", text or "")
    return float(hit[1]) if hit is not None else None


def _iommu(tree: HostTree, devices: Sequence[PciDevice]) -> Check:
    confirm = "cat /proc/cmdline; ls /sys/kernel/iommu_groups | wc -l"
    cmdline = tree.text("proc/cmdline")
    if not devices or cmdline is None:
        return Check("iommu", "unknown", "the PCI bus or /proc/cmdline cannot be read", confirm)
    if is_virtual_machine(tree):
        reason = "this is a guest: its host's IOMMU cannot be seen from here"
        return Check("iommu", "unknown", reason, confirm)
    groups = iommu_groups(tree)
    if groups == 0:
        return Check("iommu", "pass", "no IOMMU translates", confirm)
    if "iommu=pt" in cmdline.split():
        return Check("iommu", "pass", f"{groups} groups, passed through (iommu=pt)", confirm)
    return Check(
        "iommu",
        "warn",
        f"the IOMMU translates ({groups} groups, no iommu=pt): pinning takes longer, and peer "
        "copies go up to the root or fail",
        confirm,
        "iommu=pt on the kernel command line (or off in the BIOS, where nothing is passed through)",
    )


def _acs(tree: HostTree, devices: list[PciDevice]) -> Check:
    confirm = "lspci -vvv | grep -i acsctl   # as root"
    if not any(device.is_gpu for device in devices):
        return Check("acs", "unknown", _NO_GPU, confirm)
    redirecting = acs_bridges(tree, devices)
    if redirecting is None:
        reason = "bridges' registers cannot be read (root is needed)"
        return Check("acs", "unknown", reason, confirm)
    if not redirecting:
        return Check("acs", "pass", "no bridge redirects peer traffic", confirm)
    return Check(
        "acs",
        "warn",
        f"ACS is on at {len(redirecting)} bridge(s), {redirecting[0]} for one: copies between GPUs "
        "behind one switch go up to the root",
        confirm,
        f"setpci -s {redirecting[0]} ECAP_ACS+0x6.w=0000 for each (not where VMs get devices)",
    )


def _peers(tree: HostTree) -> Check:
    confirm = "nvidia-smi topo -p2p r; nvidia-smi topo -p2p w"
    taken = {name: tree.command(name) for name in ("peers-read", "peers-write")}
    rows = {name: _peer_rows(each.text) for name, each in taken.items()}
    if not any(rows.values()):
        reason = taken["peers-read"].problem or "nvidia-smi printed no peer matrix"
        return Check("peer-to-peer", "unknown", reason, confirm)
    if all(len(cells) < 2 for cells in rows.values()):
        return Check("peer-to-peer", "pass", "one GPU has no peers", confirm)
    bad = [
        (name, word)
        for name, cells in rows.items()
        for row in cells
        for word in row
        if word in _PEER_WORDS
    ]
    if not bad:
        return Check("peer-to-peer", "pass", "all GPUs copy to all others", confirm)
    name, word = bad[0]
    way = "read" if name == "peers-read" else "write"
    return Check(
        "peer-to-peer",
        "warn",
        f"{len(bad)} pairs cannot {way} each other's memory: {_PEER_WORDS[word]} ({word}); NCCL "
        "will go through host memory",
        confirm,
        "consumer parts and vGPUs have none by design: keep tensor-parallel groups small; else "
        "look at ACS, IOMMU and the driver",
    )


def _peer_rows(text: str) -> list[list[str]]:
    hits = (re.match(r"\s*GPU\d+\s+(\S.*)", line) for line in text.splitlines())
    rows = [hit[1].split() for hit in hits if hit is not None]
    return [row for row in rows if not row[0].startswith("GPU") and ("X" in row or "OK" in row)]


def _gpudirect(tree: HostTree, devices: Sequence[PciDevice]) -> Check:
    confirm = "lsmod | grep -E 'nvidia_peermem|nv_peer_mem|nvidia_fs'; ls /sys/class/infiniband"
    if not any(device.is_gpu for device in devices):
        return Check("gpudirect", "unknown", _NO_GPU, confirm)
    adapters, modules = tree.names("sys/class/infiniband"), kernel_modules(tree)
    if not adapters:
        reason = "no RDMA adapter: nothing could use GPUDirect RDMA (Pagoda itself does not)"
        return Check("gpudirect", "pass", reason, confirm)
    if modules is None:
        return Check("gpudirect", "unknown", "/proc/modules cannot be read", confirm)
    if modules & {"nvidia_peermem", "nv_peer_mem"}:
        reason = f"{len(adapters)} RDMA adapter(s), peer memory module loaded"
        return Check("gpudirect", "pass", reason, confirm)
    return Check(
        "gpudirect",
        "warn",
        f"{len(adapters)} RDMA adapter(s) but no peer memory module: unless NCCL finds DMA-BUF, "
        "data between nodes bounces through host memory",
        confirm,
        "modprobe nvidia_peermem, or a driver with open kernel modules on Linux 5.12 or later",
    )


def _fabric(tree: HostTree, devices: Sequence[PciDevice]) -> Check:
    confirm = "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric"
    if not any(device.is_gpu for device in devices):
        return Check("fabric-manager", "unknown", _NO_GPU, confirm)
    if not any(device.is_nvswitch for device in devices):
        return Check(
            "fabric-manager", "pass", "no NVSwitch on the PCI bus: none is needed", confirm
        )
    running = services(tree)
    if running is None:
        return Check("fabric-manager", "unknown", "processes cannot be listed", confirm)
    if "nv-fabricmanage" in running:
        return Check("fabric-manager", "pass", "the fabric manager runs", confirm)
    return Check(
        "fabric-manager",
        "warn",
        "NVSwitches but no fabric manager among the processes seen here (in a container the host's "
        "is hidden): without it CUDA cannot start",
        confirm,
        "systemctl enable --now nvidia-fabricmanager, of exactly the driver's version",
    )
