"""A tar of this host's facts that can be read elsewhere with --root, and given to others.

It holds a fixed list of files and what was derived from others; never host names, network
addresses, serial numbers, user names, process arguments or secrets. Files that could name
such things (the socket tables, the environment) are rewritten first.
"""

from __future__ import annotations

import io
import os
import re
import socket
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from pagoda.machine.cpus import services
from pagoda.machine.mounts import SHM_POINT, Mount, mounts, shm_size_bytes
from pagoda.machine.pci import acs_bridges, pci_devices
from pagoda.machine.sockets import listening_ports
from pagoda.machine.software import environment, packages
from pagoda.machine.spill import SpillFacts
from pagoda.machine.tree import COMMANDS, HostTree

__all__ = ["captured_files", "scrub", "write_tar"]

_PLAIN = (
    "proc/self/limits",
    "proc/meminfo",
    "proc/modules",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/net/ipv4/ip_local_port_range",
    "proc/sys/vm/overcommit_memory",
    "proc/sys/vm/overcommit_ratio",
    "proc/sys/vm/max_map_count",
    "proc/sys/vm/swappiness",
    "proc/driver/nvidia/version",
    "sys/module/nvidia/version",
    "sys/module/vfio_iommu_type1/parameters/dma_entry_limit",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/kernel/mm/transparent_hugepage/enabled",
)
_GROUP_FILES = ("memory.max", "memory.current")
_GROUP_FILES_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_PCI_FILES = (
    "vendor",
    "class",
    "current_link_width",
    "max_link_width",
    "current_link_speed",
    "max_link_speed",
    "numa_node",
)
# Kernel arguments that are facts; others may carry addresses, device ids or secrets.
_ARGUMENTS = re.compile(
    r"(iommu|intel_iommu|amd_iommu|swiotlb|mem_encrypt|pci|hugepages\w*)=[\w,.:-]{1,40}"
)


def captured_files(tree: HostTree, spills: Sequence[SpillFacts] = ()) -> dict[str, str]:
    """Every file of the tar by path, scrubbed."""
    found = {path: text for path in _PLAIN if (text := tree.text(path)) is not None}
    found |= _status(tree) | _groups(tree) | _cpus(tree) | _pci(tree) | _network(tree)
    found["proc/self/mountinfo"] = _mountinfo(mounts(tree))
    found["proc/cmdline"] = " ".join(
        h[0] for h in _ARGUMENTS.finditer(tree.text("proc/cmdline") or "")
    )
    found |= _derived(tree)
    found |= {f"pagoda/spill-{k}.json": _spill(spill, k) for k, spill in enumerate(spills)}
    return {path: _shareable(path, text) + "\n" for path, text in found.items()}


def _shareable(path: str, text: str) -> str:
    # Versions of four numbers look like addresses.
    plain = text if path == "pagoda/packages.txt" else scrub(text)
    for word in _private_words():
        plain = re.sub(rf"\b{re.escape(word)}\b", "x", plain)
    return plain


def _private_words() -> set[str]:
    """Names of this host and user, unless they are words that say nothing."""
    host = socket.gethostname()
    words = {host, host.split(".")[0], os.environ.get("USER", ""), os.environ.get("LOGNAME", "")}
    return {word for word in words if len(word) > 2 and word not in ("root", "localhost", "host")}


def write_tar(files: Mapping[str, str], target: Path) -> None:
    """Write the files as a tar without owner, time or host in it; raises OSError."""
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(files):
            data = files[path].encode()
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


_SCRUBS = (
    (re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "GPU-x"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "uuid"),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE), "mac"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"), "address"),
    (re.compile(r"\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b", re.IGNORECASE), "address"),
    (re.compile(r"(/home|/Users|/root)/?[^/\s:,;]*"), r"\1"),
    (re.compile(r"(?i)(serial(?:[ _-]?\w{1,12})?\s{0,8}[:=]\s{0,8})\S+"), r"\1x"),
)


def scrub(text: str) -> str:
    """Take addresses, unique ids, serial numbers and home directories out of text."""
    for pattern, plain in _SCRUBS:
        text = pattern.sub(plain, text)
    return text


def _status(tree: HostTree) -> dict[str, str]:
    lines = (tree.text("proc/self/status") or "").splitlines()
    return {"proc/self/status": "\n".join(line for line in lines if line.startswith("CapEff:"))}


def _groups(tree: HostTree) -> dict[str, str]:
    """Memory limits, with the groups' own names (pods, users) made anonymous."""
    found: dict[str, str] = {}
    for line in (tree.text("proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or parts[1] not in ("", "memory"):
            continue
        base = "sys/fs/cgroup" if parts[1] == "" else "sys/fs/cgroup/memory"
        names = _GROUP_FILES if parts[1] == "" else _GROUP_FILES_V1
        steps = [name for name in parts[2].split("/") if name and name != ".."]
        found["proc/self/cgroup"] = found.get("proc/self/cgroup", "") + (
            f"{parts[0]}:{parts[1]}:/" + "/".join(f"g{k}" for k in range(len(steps))) + "\n"
        )
        for depth in range(len(steps) + 1):
            real = "/".join([base, *steps[:depth]])
            plain = "/".join([base, *(f"g{k}" for k in range(depth))])
            texts = {f"{plain}/{name}": tree.text(f"{real}/{name}") for name in names}
            found |= {path: text for path, text in texts.items() if text is not None}
    return found


def _cpus(tree: HostTree) -> dict[str, str]:
    nodes = [f"sys/devices/system/node/{n}" for n in tree.names("sys/devices/system/node")]
    paths = [f"{node}/{name}" for node in nodes for name in ("cpulist", "meminfo")]
    cpus = [n for n in tree.names("sys/devices/system/cpu") if re.fullmatch(r"cpu\d+", n)]
    paths += [f"sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor" for cpu in cpus]
    found = {path: text for path in paths if (text := tree.text(path)) is not None}
    flags = re.search(r"^flags\s*:.*$", tree.text("proc/cpuinfo") or "", re.MULTILINE)
    if flags is not None:
        guest = " hypervisor" if re.search(r"\bhypervisor\b", flags[0]) else ""
        found["proc/cpuinfo"] = f"flags\t\t:{guest} end"
    return found


def _pci(tree: HostTree) -> dict[str, str]:
    found: dict[str, str] = {}
    for device in pci_devices(tree):
        if device.is_gpu or device.is_nvswitch or device.is_nvme or device.class_code >> 16 == 2:
            base = f"sys/bus/pci/devices/{device.address}"
            texts = {f"{base}/{name}": tree.text(f"{base}/{name}") for name in _PCI_FILES}
            found |= {path: text for path, text in texts.items() if text is not None}
    groups = [name for name in tree.names("sys/kernel/iommu_groups") if name.isdecimal()]
    return found | {f"sys/kernel/iommu_groups/{group}/type": "" for group in groups}


def _network(tree: HostTree) -> dict[str, str]:
    """Listening ports alone, as a socket table without addresses, and adapters' names."""
    ports = listening_ports(tree)
    found = {f"sys/class/infiniband/{n}/present": "" for n in tree.names("sys/class/infiniband")}
    if ports is not None:
        rows = [f"   {k}: 0:{port:04X} 0:0000 0A" for k, port in enumerate(sorted(ports))]
        found["proc/net/tcp"] = "\n".join(["  sl  local_address rem_address   st", *rows])
    return found


def _mountinfo(found: Iterable[Mount]) -> str:
    """Mount points that matter, without the names of sources and directories."""
    kept = [mount for mount in found if mount.point in ("/", SHM_POINT)]
    lines = []
    for k, mount in enumerate(kept):
        options = ",".join(
            sorted(o for o in mount.options if re.fullmatch(r"[a-z_]+|size=\d+[kmg]?", o))
        )
        lines.append(
            f"{k} 0 {mount.device or '0:0'} / {mount.point} {options} - {mount.kind} none rw"
        )
    return "\n".join(lines)


def _derived(tree: HostTree) -> dict[str, str]:
    found = {}
    for name in COMMANDS:
        taken = tree.command(name)
        if taken.text:
            # The table of processes names other people's programs.
            found[f"pagoda/commands/{name}.txt"] = taken.text.partition("| Processes")[0]
    versions, running = packages(tree) or {}, services(tree)
    bridges = acs_bridges(tree, pci_devices(tree))
    found["pagoda/packages.txt"] = "\n".join(
        f"{n}=={v}" for n, vs in sorted(versions.items()) for v in vs
    )
    found["pagoda/environ.txt"] = "\n".join(f"{k}={v}" for k, v in _settings(tree))
    if running is not None:
        found["pagoda/services.txt"] = "\n".join(sorted(running))
    if bridges is not None:
        found["pagoda/acs.txt"] = "\n".join(bridges)
    size = shm_size_bytes(tree)
    return found if size is None else found | {"pagoda/shm_bytes.txt": str(size)}


def _settings(tree: HostTree) -> list[tuple[str, str]]:
    """Variables of NCCL and CUDA whose values are plain words; others may name hosts."""
    private = re.compile(r"HOST|ADDR|URL|_IP|COMM_ID|FILE|PATH|DIR")
    return sorted(
        (name, value)
        for name, value in environment(tree).items()
        if name.startswith(("NCCL_", "CUDA_"))
        and private.search(name) is None
        and re.fullmatch(r"[\w.,:=^*+-]{0,80}", value)
    )


def _spill(spill: SpillFacts, k: int) -> str:
    """Facts of a spill directory without its name."""
    return replace(spill, path=f"spill-{k}", real_path=f"spill-{k}").as_json()


def unpack_tar(source: Path, directory: Path) -> None:
    """Unpack the regular files of a capture; links, devices and whatever would lie outside
    `directory` are left out. Raises OSError and tarfile.TarError."""
    with tarfile.open(source) as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            content = tar.extractfile(member) if member.isfile() else None
            if content is None or name.is_absolute() or ".." in name.parts:
                continue
            target = directory.joinpath(*name.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())
