"""Processors of this host: NUMA nodes, frequency governors, clock source, running services."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pagoda.machine.tree import HostTree

__all__ = ["NumaNode", "clock_source", "governors", "is_virtual_machine", "numa_nodes", "services"]

# Only these are ever looked for or written to a captured tree: other names are private.
SERVICES = (
    "irqbalance",
    "chronyd",
    "ntpd",
    "systemd-timesyn",
    "ptp4l",
    "phc2sys",
    "nv-fabricmanage",
    "nvidia-persiste",
    "numad",
)


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One node: its id, processor list as the kernel prints it, and memory in bytes."""

    id: int
    cpus: str
    total_bytes: int | None
    free_bytes: int | None


def numa_nodes(tree: HostTree) -> list[NumaNode]:
    """Nodes of /sys/devices/system/node; none where the kernel shows none."""
    base = "sys/devices/system/node"
    ids = [int(name[4:]) for name in tree.names(base) if re.fullmatch(r"node\d{1,5}", name)]
    return [_node(tree, f"{base}/node{node}", node) for node in sorted(ids)]


def _node(tree: HostTree, path: str, node: int) -> NumaNode:
    text = tree.text(f"{path}/meminfo") or ""
    sizes = {
        hit[1]: int(hit[2]) << 10 for hit in re.finditer(r"(MemTotal|MemFree):\s+(\d+) kB", text)
    }
    cpus = tree.text(f"{path}/cpulist") or ""
    return NumaNode(node, cpus, sizes.get("MemTotal"), sizes.get("MemFree"))


def governors(tree: HostTree) -> dict[str, int]:
    """How many processors use each frequency governor; empty where the kernel sets none."""
    found: dict[str, int] = {}
    for name in tree.names("sys/devices/system/cpu"):
        if re.fullmatch(r"cpu\d{1,5}", name):
            governor = tree.text(f"sys/devices/system/cpu/{name}/cpufreq/scaling_governor")
            if governor is not None:
                found[governor] = found.get(governor, 0) + 1
    return found


def clock_source(tree: HostTree) -> str | None:
    """What the kernel reads the time from, such as tsc or hpet."""
    return tree.text("sys/devices/system/clocksource/clocksource0/current_clocksource")


def is_virtual_machine(tree: HostTree) -> bool | None:
    """Tell whether this host is a guest: x86 says so among its processor's flags."""
    text = tree.text("proc/cpuinfo")
    if text is None or "flags" not in text:
        return None
    return re.search(r"^flags\s*:.*\bhypervisor\b", text, re.MULTILINE) is not None


def services(tree: HostTree) -> set[str] | None:
    """Which of SERVICES run; None when the processes cannot be listed."""
    if not tree.live:
        text = tree.text("pagoda/services.txt")
        return None if text is None else {line for line in text.split() if line in SERVICES}
    pids = [name for name in tree.names("proc") if name.isdecimal()]
    running = {tree.text(f"proc/{pid}/comm") for pid in pids}
    return {name for name in SERVICES if name in running} if pids else None
