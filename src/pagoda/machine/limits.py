"""Limits of this host's memory: resource limits, control groups, virtual memory, /dev/shm."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pagoda.machine.tree import HostTree

__all__ = [
    "UNLIMITED",
    "CgroupLimit",
    "ResourceLimit",
    "cgroup_limits",
    "has_capability",
    "meminfo",
    "resource_limit",
    "vm_setting",
]

UNLIMITED = 1 << 62
CAP_IPC_LOCK = 14


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """A soft and a hard limit in the unit that the kernel uses; UNLIMITED when there is none."""

    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class CgroupLimit:
    """A control group's memory limit and use in bytes, and the file that says so."""

    limit_bytes: int
    used_bytes: int | None
    path: str


def resource_limit(tree: HostTree, name: str) -> ResourceLimit | None:
    """A row of /proc/self/limits, such as "Max locked memory"."""
    for line in (tree.text("proc/self/limits") or "").splitlines():
        if line.startswith(name):
            words = line[len(name) :].split()
            if len(words) >= 2:
                return ResourceLimit(_limit(words[0]), _limit(words[1]))
    return None


def _limit(word: str) -> int:
    return int(word) if word.isdecimal() else UNLIMITED


def has_capability(tree: HostTree, bit: int) -> bool | None:
    """Tell whether this process has a capability in effect; None when it cannot be read."""
    for line in (tree.text("proc/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            mask = line.split()[-1]
            return bool(int(mask, 16) >> bit & 1) if re.fullmatch(r"[0-9a-f]{1,16}", mask) else None
    return None


def meminfo(tree: HostTree) -> dict[str, int]:
    """Rows of /proc/meminfo in bytes (counts, such as HugePages_Total, as they are)."""
    found = {}
    for line in (tree.text("proc/meminfo") or "").splitlines():
        hit = re.match(r"([\w()]+):\s+(\d+)( kB)?", line)
        if hit is not None:
            found[hit[1]] = int(hit[2]) * (1024 if hit[3] else 1)
    return found


def vm_setting(tree: HostTree, name: str) -> int | None:
    """A setting of /proc/sys/vm."""
    return tree.number(f"proc/sys/vm/{name}")


def cgroup_limits(tree: HostTree) -> list[CgroupLimit]:
    """Memory limits of this process's group and of all groups above it, either version."""
    found = []
    for directory, limit_name, used_name in _cgroup_places(tree):
        text = tree.text(f"{directory}/{limit_name}")
        if text is not None:
            # Version 1 says "no limit" as a number of pages that no machine has.
            limit = int(text) if text.isdecimal() and int(text) < UNLIMITED else UNLIMITED
            used = tree.number(f"{directory}/{used_name}")
            found.append(CgroupLimit(limit, used, f"/{directory}/{limit_name}"))
    return found


def _cgroup_places(tree: HostTree) -> list[tuple[str, str, str]]:
    places = [
        ("sys/fs/cgroup", "memory.max", "memory.current"),
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ]
    for line in (tree.text("proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or ".." in parts[2]:
            continue
        if parts[1] == "":
            places += [(f"sys/fs/cgroup/{up}", *places[0][1:]) for up in _upwards(parts[2])]
        elif parts[1] == "memory":
            places += [(f"sys/fs/cgroup/memory/{up}", *places[1][1:]) for up in _upwards(parts[2])]
    return places


def _upwards(path: str) -> list[str]:
    names = [name for name in path.split("/") if name]
    return ["/".join(names[: k + 1]) for k in range(len(names))]
