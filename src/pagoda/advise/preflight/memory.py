"""Checks of memory: locks, control groups, overcommit, huge pages, registration, /dev/shm."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pagoda.advise.preflight.check import GIB, MIB, Check, sized
from pagoda.advise.preflight.need import Need
from pagoda.machine.limits import (
    CAP_IPC_LOCK,
    UNLIMITED,
    cgroup_limits,
    has_capability,
    meminfo,
    resource_limit,
    vm_setting,
)
from pagoda.machine.mounts import SHM_POINT, shm_size_bytes
from pagoda.machine.software import kernel_release
from pagoda.machine.tree import HostTree

__all__ = ["memory_checks"]

# Below this no host tier worth having can be locked in memory.
USEFUL_LOCK_BYTES = GIB
# What Docker gives a container unless told otherwise.
DOCKER_SHM_BYTES = 64 * MIB
SHM_PER_RANK_BYTES = GIB
# The kernel's own default; each registered chunk may become a mapping of its own.
DEFAULT_MAP_COUNT = 65_530
# Left to the weights' loader, the page cache and the rest of the system.
PINNED_SHARE = 0.8


def memory_checks(tree: HostTree, need: Need) -> Iterator[Check]:
    """All memory checks, in the order in which a start-up meets them."""
    yield _memlock(tree, need)
    yield _cgroup(tree, need)
    yield _pinned(tree, need)
    yield _overcommit(tree, need)
    yield _huge_pages(tree)
    yield _map_count(tree)
    yield _registration(tree)
    yield _shm(tree, need)


def _memlock(tree: HostTree, need: Need) -> Check:
    confirm = "grep 'Max locked memory' /proc/self/limits"
    limit = resource_limit(tree, "Max locked memory")
    if limit is None:
        return Check("memlock", "unknown", "/proc/self/limits cannot be read", confirm)
    if limit.soft >= UNLIMITED:
        return Check("memlock", "pass", "locked memory is unlimited", confirm)
    if has_capability(tree, CAP_IPC_LOCK):
        reason = f"the limit is {sized(limit.soft)}, but CAP_IPC_LOCK lifts it for this process"
        return Check("memlock", "pass", reason, confirm)
    wanted = need.pinned_bytes or USEFUL_LOCK_BYTES
    what = "the pinned memory of a rank" if need.pinned_bytes else "any useful host tier"
    if limit.soft >= wanted:
        return Check("memlock", "pass", f"{sized(limit.soft)} may be locked", confirm)
    raisable = "`ulimit -l unlimited` first" if limit.hard >= wanted else "raise the hard limit"
    return Check(
        "memlock",
        "fail",
        f"only {sized(limit.soft)} may be locked, {what} needs {sized(wanted)}: mlock and RDMA "
        "registration will fail (vm.overcommit_memory has nothing to do with it)",
        confirm,
        f"{raisable}; lasting: LimitMEMLOCK=infinity (systemd), --ulimit memlock=-1 (docker), "
        "or memlock unlimited in /etc/security/limits.conf",
    )


def _cgroup(tree: HostTree, need: Need) -> Check:
    confirm = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes"
    limits = cgroup_limits(tree)
    if not limits:
        return Check("cgroup-memory", "unknown", "no memory control group can be read", confirm)
    tightest = min(limits, key=lambda limit: limit.limit_bytes)
    if tightest.limit_bytes >= UNLIMITED:
        return Check("cgroup-memory", "pass", "no control group limits memory", confirm)
    wanted = need.all_pinned_bytes
    has = f"the control group allows {sized(tightest.limit_bytes)} ({tightest.path})"
    if wanted is None:
        return Check("cgroup-memory", "pass", f"{has}; say --pinned-gib to compare", confirm)
    if wanted <= tightest.limit_bytes * PINNED_SHARE:
        return Check("cgroup-memory", "pass", f"{has}, {sized(wanted)} will be pinned", confirm)
    return Check(
        "cgroup-memory",
        "fail",
        f"{has}, but {sized(wanted)} are to be pinned and pinned pages count and cannot be "
        f"reclaimed: beyond {PINNED_SHARE:.0%} the group runs out of memory",
        confirm,
        "raise the group's limit (resources.limits.memory, --memory) or pin less a rank",
    )


def _pinned(tree: HostTree, need: Need) -> Check:
    confirm = "grep -E 'MemTotal|MemAvailable' /proc/meminfo"
    facts = meminfo(tree)
    total, free = facts.get("MemTotal"), facts.get("MemAvailable")
    wanted = need.all_pinned_bytes
    if wanted is None:
        return Check("pinned-total", "unknown", "say --pinned-gib (and --ranks) to check", confirm)
    if total is None:
        return Check("pinned-total", "unknown", "/proc/meminfo cannot be read", confirm)
    each = f"{need.ranks} rank(s) × {sized(need.pinned_bytes or 0)} = {sized(wanted)} pinned"
    remedy = "pin less a rank: the size is for each rank, not for the host"
    if wanted > total * PINNED_SHARE:
        reason = f"{each}, more than {PINNED_SHARE:.0%} of {sized(total)} of memory"
        return Check("pinned-total", "fail", reason, confirm, remedy)
    if free is not None and wanted > free:
        reason = f"{each}, but only {sized(free)} are available now"
        return Check("pinned-total", "fail", reason, confirm, remedy)
    return Check("pinned-total", "pass", f"{each} of {sized(total)}", confirm)


def _overcommit(tree: HostTree, need: Need) -> Check:
    confirm = "sysctl vm.overcommit_memory; grep -E 'CommitLimit|Committed_AS' /proc/meminfo"
    mode = vm_setting(tree, "overcommit_memory")
    if mode is None:
        return Check("overcommit", "unknown", "vm.overcommit_memory cannot be read", confirm)
    if mode != 2:
        reason = f"vm.overcommit_memory is {mode}: large reservations are allowed"
        return Check("overcommit", "pass", reason, confirm)
    facts = meminfo(tree)
    room = facts.get("CommitLimit", 0) - facts.get("Committed_AS", 0)
    wanted = need.all_pinned_bytes
    enough = wanted is not None and "CommitLimit" in facts and room > 2 * wanted
    return Check(
        "overcommit",
        "warn" if enough else "fail",
        f"vm.overcommit_memory is 2 (strict): {sized(max(room, 0))} are left to reserve, while "
        "CUDA and the pools reserve far more address space than they touch",
        confirm,
        "sysctl -w vm.overcommit_memory=0 (or 1), or raise vm.overcommit_ratio",
    )


def _huge_pages(tree: HostTree) -> Check:
    confirm = "cat /sys/kernel/mm/transparent_hugepage/enabled; grep Huge /proc/meminfo"
    text = tree.text("sys/kernel/mm/transparent_hugepage/enabled")
    hit = re.search(r"\[(\w+)\]", text or "")
    facts = meminfo(tree)
    idle = facts.get("HugePages_Free", 0) * facts.get("Hugepagesize", 0)
    if idle > 0.25 * facts.get("MemTotal", 0) and idle:
        reason = (
            f"{sized(idle)} lie in reserved huge pages that nobody uses: pools cannot have them"
        )
        return Check("huge-pages", "warn", reason, confirm, "sysctl -w vm.nr_hugepages=0")
    if hit is None:
        return Check("huge-pages", "unknown", "transparent huge pages cannot be read", confirm)
    if hit[1] == "never":
        return Check(
            "huge-pages",
            "warn",
            "transparent huge pages are off: a pinned pool of 4 KiB pages takes far longer to pin",
            confirm,
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    return Check("huge-pages", "pass", f"transparent huge pages: {hit[1]}", confirm)


def _map_count(tree: HostTree) -> Check:
    confirm = "sysctl vm.max_map_count"
    count = vm_setting(tree, "max_map_count")
    if count is None:
        return Check("max-map-count", "unknown", "vm.max_map_count cannot be read", confirm)
    if count < DEFAULT_MAP_COUNT:
        reason = f"{count} mappings a process, fewer than the kernel's default {DEFAULT_MAP_COUNT}"
        return Check("max-map-count", "warn", reason, confirm, "sysctl -w vm.max_map_count=262144")
    return Check("max-map-count", "pass", f"{count} mappings a process", confirm)


def _registration(tree: HostTree) -> Check:
    """Ceilings of one registration call: WSL, confidential guests, VFIO, address space."""
    confirm = "uname -r; cat /proc/cmdline; grep 'Max address space' /proc/self/limits"
    release = kernel_release(tree)
    if release is None:
        return Check("registration", "unknown", "the kernel's release cannot be read", confirm)
    found = [*_registration_ceilings(tree, release)]
    if found:
        remedy = "register in chunks of at most 1 GiB, and test one registration of the full pool"
        return Check("registration", "warn", "; ".join(found), confirm, remedy)
    if tree.text("proc/driver/nvidia/version") is None:
        reason = "no ceiling in the kernel, but without the NVIDIA driver none can be tried"
        return Check("registration", "unknown", reason, confirm)
    return Check("registration", "pass", "no known ceiling on one registration call", confirm)


def _registration_ceilings(tree: HostTree, release: str) -> Iterator[str]:
    if "microsoft" in release.lower():
        yield "WSL: Windows caps pinned memory at about half of the host's"
    cmdline = tree.text("proc/cmdline") or ""
    if "swiotlb=force" in cmdline or "mem_encrypt=on" in cmdline:
        yield "memory encryption: the bounce buffer's size caps a registration"
    entries = tree.number("sys/module/vfio_iommu_type1/parameters/dma_entry_limit")
    if entries is not None and entries < DEFAULT_MAP_COUNT:
        yield f"VFIO allows {entries} DMA mappings a container"
    space = resource_limit(tree, "Max address space")
    if space is not None and space.soft < UNLIMITED:
        yield f"the address space is limited to {sized(space.soft)}, and CUDA reserves terabytes"


def _shm(tree: HostTree, need: Need) -> Check:
    confirm = "df -h /dev/shm"
    size = shm_size_bytes(tree)
    if size is None:
        return Check("shm", "unknown", f"the size of {SHM_POINT} cannot be read", confirm)
    remedy = "docker run --shm-size=16g or --ipc=host; Kubernetes: an emptyDir of medium Memory"
    if size <= DOCKER_SHM_BYTES:
        reason = (
            f"{SHM_POINT} has {sized(size)}, Docker's default: NCCL and the engines' workers put "
            "segments there and die of a bus error when it is full"
        )
        return Check("shm", "fail", reason, confirm, remedy)
    wanted = SHM_PER_RANK_BYTES * need.ranks
    if size < wanted:
        reason = (
            f"{SHM_POINT} has {sized(size)}, less than {sized(wanted)} for {need.ranks} rank(s)"
        )
        return Check("shm", "warn", reason, confirm, remedy)
    return Check("shm", "pass", f"{SHM_POINT} has {sized(size)}", confirm)
