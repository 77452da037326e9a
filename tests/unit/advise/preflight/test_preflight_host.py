"""Each check of a host passes on the healthy tree, and changes with the one fact it is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pagoda.advise.preflight.check import GIB, Check, ready, worst
from pagoda.advise.preflight.need import Need
from pagoda.advise.preflight.run import host_checks
from pagoda.machine.tree import HostTree

LIMITS = "proc/self/limits"
PCI = "sys/bus/pci/devices"
GPU = f"{PCI}/0000:01:00.0"
NVME = f"{PCI}/0000:02:00.0"
SWITCH = f"{PCI}/0000:03:00.0"
PACKAGES = "pagoda/packages.txt"
MEMINFO = "proc/meminfo"


def locked(size: int | str) -> str:
    """A limits file with one memory-lock limit."""
    return f"Max locked memory         {size}           {size}           bytes"


def spill(**changes: Any) -> dict[str, str]:
    """The spill directory's facts with some changed."""
    facts = {
        "path": "s",
        "real_path": "/s",
        "file_system": "xfs",
        "options": ["rw"],
        "sector_bytes": 512,
        "size_bytes": 1000 * GIB,
        "free_bytes": 900 * GIB,
        "direct": "works",
        "mode": 0o700,
        "device": "8:1",
    }
    return {"pagoda/spill-0.json": json.dumps({**facts, **changes})}


def wear(used: int, spare: int, warning: int) -> dict[str, str]:
    """Spill facts with a drive's account of itself."""
    return spill(wear={"used_percent": used, "spare_percent": spare, "warning": warning})


def test_a_healthy_host_passes_everything(judge: Any) -> None:
    """No check warns, fails or is unknown on the healthy tree."""
    checks = judge(pinned_bytes=20 * GIB, ranks=2)
    assert {c.id: (c.status, c.reason) for c in checks.values() if c.status != "pass"} == {}
    assert len(checks) >= 36


# check, status, a word of the reason, changed files
CASES: list[tuple[str, str, str, dict[str, str | None]]] = [
    ("memlock", "fail", "64 KiB", {LIMITS: locked(65536)}),
    ("memlock", "pass", "2 GiB", {LIMITS: locked(2 * GIB)}),
    (
        "memlock",
        "pass",
        "CAP_IPC_LOCK",
        {LIMITS: locked(65536), "proc/self/status": "CapEff:\t0000000000004000"},
    ),
    ("memlock", "unknown", "cannot be read", {LIMITS: None}),
    ("memlock", "unknown", "cannot be read", {LIMITS: "garbage"}),
    ("cgroup-memory", "pass", "10 GiB", {"sys/fs/cgroup/pod/memory.max": str(10 * GIB)}),
    (
        "cgroup-memory",
        "unknown",
        "no memory control group",
        {"sys/fs/cgroup/pod/memory.max": None, "proc/self/cgroup": None},
    ),
    (
        "cgroup-memory",
        "pass",
        "3 GiB",
        {
            "proc/self/cgroup": "7:memory:/pod",
            "sys/fs/cgroup/pod/memory.max": None,
            "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": str(3 * GIB),
        },
    ),
    ("overcommit", "fail", "strict", {"proc/sys/vm/overcommit_memory": "2"}),
    ("overcommit", "unknown", "cannot be read", {"proc/sys/vm/overcommit_memory": None}),
    (
        "huge-pages",
        "warn",
        "are off",
        {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"},
    ),
    (
        "huge-pages",
        "warn",
        "nobody uses",
        {MEMINFO: "MemTotal: 1048576 kB\nHugePages_Free: 400\nHugepagesize: 2048 kB"},
    ),
    ("huge-pages", "unknown", "cannot", {"sys/kernel/mm/transparent_hugepage/enabled": None}),
    ("max-map-count", "warn", "fewer", {"proc/sys/vm/max_map_count": "30000"}),
    ("max-map-count", "unknown", "cannot", {"proc/sys/vm/max_map_count": None}),
    ("registration", "warn", "WSL", {"proc/sys/kernel/osrelease": "5.15-microsoft-standard-WSL2"}),
    ("registration", "warn", "encryption", {"proc/cmdline": "mem_encrypt=on"}),
    (
        "registration",
        "warn",
        "VFIO",
        {"sys/module/vfio_iommu_type1/parameters/dma_entry_limit": "1024"},
    ),
    ("registration", "unknown", "driver", {"proc/driver/nvidia/version": None}),
    ("registration", "unknown", "release", {"proc/sys/kernel/osrelease": None}),
    (
        "shm",
        "fail",
        "bus error",
        {"proc/self/mountinfo": "1 0 0:1 / /dev/shm rw - tmpfs shm rw,size=65536k"},
    ),
    (
        "shm",
        "warn",
        "less than",
        {"proc/self/mountinfo": "1 0 0:1 / /dev/shm rw - tmpfs shm rw,size=512m"},
    ),
    ("shm", "unknown", "cannot", {"proc/self/mountinfo": None}),
    ("numa", "warn", "says none", {f"{GPU}/numa_node": "-1"}),
    ("numa-balancing", "warn", "moves pages", {"proc/sys/kernel/numa_balancing": "1"}),
    ("numa-balancing", "unknown", "cannot", {"proc/sys/kernel/numa_balancing": None}),
    ("irqbalance", "warn", "moved away", {"pagoda/services.txt": "irqbalance\nchronyd"}),
    ("irqbalance", "unknown", "listed", {"pagoda/services.txt": None}),
    (
        "cpu-governor",
        "warn",
        "powersave",
        {"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave"},
    ),
    (
        "cpu-governor",
        "unknown",
        "VM",
        {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": None},
    ),
    (
        "clock-source",
        "warn",
        "hpet",
        {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
    ),
    ("clock-sync", "warn", "no time service", {"pagoda/services.txt": "irqbalance"}),
    ("pcie-width", "warn", "x8 of x16", {f"{GPU}/current_link_width": "8"}),
    ("pcie-width", "fail", "x4 of x16", {f"{GPU}/current_link_width": "4"}),
    ("drive-links", "warn", "x2", {f"{NVME}/current_link_width": "2"}),
    ("drive-links", "warn", "8.0 GT/s", {f"{NVME}/current_link_speed": "8.0 GT/s PCIe"}),
    ("drive-links", "unknown", "no NVMe", {f"{NVME}/class": "0x020000"}),
    (
        "iommu",
        "warn",
        "no iommu=pt",
        {"proc/cmdline": "quiet", "sys/kernel/iommu_groups/3/type": "DMA"},
    ),
    ("iommu", "pass", "passed through", {"sys/kernel/iommu_groups/3/type": "identity"}),
    ("iommu", "unknown", "guest", {"proc/cpuinfo": "flags\t\t: fpu hypervisor"}),
    ("acs", "warn", "0000:00:01.0", {"pagoda/acs.txt": "0000:00:01.0"}),
    ("acs", "unknown", "root is needed", {"pagoda/acs.txt": None}),
    (
        "peer-to-peer",
        "warn",
        "cannot write",
        {"pagoda/commands/peers-write.txt": "  GPU0 GPU1\n GPU0 X NS\n GPU1 NS X\n"},
    ),
    (
        "peer-to-peer",
        "unknown",
        "no output",
        {"pagoda/commands/peers-read.txt": None, "pagoda/commands/peers-write.txt": None},
    ),
    ("gpudirect", "warn", "no peer memory", {"proc/modules": "nvidia 1 0"}),
    ("gpudirect", "pass", "no RDMA", {"sys/class/infiniband/mlx5_0/present": None}),
    (
        "fabric-manager",
        "warn",
        "no fabric",
        {f"{SWITCH}/vendor": "0x10de", f"{SWITCH}/class": "0x068000"},
    ),
    ("mig", "warn", "GPU 1", {"pagoda/commands/mig.txt": "0, Disabled\n1, Enabled"}),
    ("mig", "unknown", "no output", {"pagoda/commands/mig.txt": None}),
    (
        "driver",
        "fail",
        "older than 535",
        {"proc/driver/nvidia/version": "NVRM version: NVIDIA Kernel Module  470.82.01  x"},
    ),
    ("driver", "unknown", "no NVIDIA", {"proc/driver/nvidia/version": None}),
    (
        "driver-library",
        "fail",
        "kernel module 570.10",
        {"pagoda/commands/nvidia-smi.txt": "Driver Version: 560.35 CUDA Version: 12.6"},
    ),
    (
        "driver-library",
        "fail",
        "different versions",
        {"pagoda/commands/nvidia-smi.txt": "Failed: Driver/library version mismatch\nNVML 560"},
    ),
    ("cuda", "fail", "older than 12.2", {PACKAGES: "nvidia-cuda-runtime-cu12==12.1.105"}),
    ("cuda", "fail", "newer driver", {PACKAGES: "torch==2.9.0+cu130"}),
    ("cuda", "warn", "compatibility", {PACKAGES: "torch==2.8.0+cu129"}),
    ("cuda", "unknown", "no CUDA runtime", {PACKAGES: "torch==2.8.0+cpu"}),
    ("nccl", "fail", "older than 2.20", {PACKAGES: "nvidia-nccl-cu12==2.19.3"}),
    ("nccl", "warn", "several", {PACKAGES: "nvidia-nccl-cu12==2.27.3\nnvidia-nccl-cu13==2.28.9"}),
    ("nccl", "unknown", "no NCCL", {PACKAGES: ""}),
    ("library-mix", "warn", "CUDA 13", {PACKAGES: "torch==2.8.0+cu128\nnvidia-nccl-cu13==2.28.9"}),
    ("environment", "warn", "NCCL_P2P_DISABLE", {"pagoda/environ.txt": "NCCL_P2P_DISABLE=1"}),
    ("drive-direct", "fail", "refused", spill(direct="O_DIRECT is refused: Invalid argument")),
    ("drive-direct", "unknown", "not probed", spill(direct=None)),
    ("drive-direct", "unknown", "say --spill", {"pagoda/spill-0.json": None}),
    ("drive-direct", "unknown", "say --spill", {"pagoda/spill-0.json": "[1]"}),
    ("drive-direct", "fail", "missing", spill(problem="is missing")),
    ("drive-alignment", "fail", "do not divide", spill(sector_bytes=8192)),
    ("drive-space", "fail", "nothing worth", spill(free_bytes=1000)),
    ("drive-space", "warn", "under 5%", spill(free_bytes=20 * GIB)),
    ("drive-filesystem", "fail", "host memory", spill(file_system="tmpfs")),
    ("drive-filesystem", "fail", "read-only", spill(options=["ro"])),
    ("drive-filesystem", "warn", "network", spill(file_system="nfs4")),
    ("drive-filesystem", "warn", "container's own layer", spill(file_system="overlay")),
    ("drive-filesystem", "warn", "copy-on-write", spill(file_system="btrfs")),
    ("drive-filesystem", "warn", "discard", spill(options=["rw", "discard"])),
    ("drive-filesystem", "warn", "rotating", spill(rotational=True)),
    ("drive-filesystem", "unknown", "mount", spill(file_system=None)),
    ("drive-wear", "warn", "85%", wear(85, 100, 0)),
    ("drive-wear", "fail", "warns", wear(20, 5, 0)),
    ("drive-wear", "fail", "warns", wear(20, 100, 4)),
    ("drive-wear", "unknown", "smartctl", spill()),
    ("drive-owner", "fail", "holds lock", spill(locks=["lock"])),
    ("drive-owner", "warn", "LMCache", spill(foreign=["LMCache"])),
    ("drive-owner", "warn", "everyone", spill(mode=0o777)),
    ("ports", "fail", "8000", {"proc/net/tcp": "head\n 0: 0:1F40 0:0 0A"}),
    ("ports", "warn", "outgoing", {"proc/sys/net/ipv4/ip_local_port_range": "1024 65535"}),
    ("ports", "unknown", "cannot", {"proc/net/tcp": None}),
]


@pytest.mark.parametrize(
    ("name", "status", "word", "changes"),
    CASES,
    ids=[f"{c[0]}-{c[1]}-{k}" for k, c in enumerate(CASES)],
)
def test_one_changed_fact_changes_its_check(
    judge: Any, name: str, status: str, word: str, changes: dict[str, str | None]
) -> None:
    """The check about the fact answers as named, with a command that confirms and a remedy."""
    check = judge(changes)[name]
    assert (check.status, word in check.reason) == (status, True), check
    assert check.confirm
    assert check.remedy or status in ("pass", "unknown")


def test_pinned_memory_counts_once_for_each_rank(judge: Any) -> None:
    """60 GiB fit once and not eight times in 512 GiB."""
    assert judge(pinned_bytes=60 * GIB)["pinned-total"].status == "pass"
    check = judge(pinned_bytes=60 * GIB, ranks=8)["pinned-total"]
    assert check.status == "fail"
    assert "8 rank(s) × 60 GiB" in check.reason


def test_pinned_memory_leaves_a_fifth_of_the_host(judge: Any) -> None:
    """Over 80 % of memory is too much, even while it is free."""
    files = {MEMINFO: "MemTotal: 104857600 kB\nMemAvailable: 104857600 kB"}
    assert judge(files, pinned_bytes=79 * GIB)["pinned-total"].status == "pass"
    assert judge(files, pinned_bytes=85 * GIB)["pinned-total"].status == "fail"


def test_pinned_memory_must_be_free_now(judge: Any) -> None:
    """Less than the total is not enough when it is in use."""
    files = {MEMINFO: "MemTotal: 104857600 kB\nMemAvailable: 1048576 kB"}
    assert judge(files, pinned_bytes=20 * GIB)["pinned-total"].status == "fail"


def test_a_group_limit_below_the_pinned_memory_fails(judge: Any) -> None:
    """Pinned pages count against the control group and cannot be reclaimed."""
    files = {"sys/fs/cgroup/pod/memory.max": str(64 * GIB)}
    assert judge(files, pinned_bytes=20 * GIB)["cgroup-memory"].status == "pass"
    assert judge(files, pinned_bytes=20 * GIB, ranks=4)["cgroup-memory"].status == "fail"


def test_a_limit_of_a_group_above_counts(judge: Any) -> None:
    """The tightest limit on the way to the root is the one that holds."""
    files = {
        "proc/self/cgroup": "0::/slice/pod",
        "sys/fs/cgroup/slice/memory.max": str(GIB),
        "sys/fs/cgroup/slice/pod/memory.max": "max",
    }
    check = judge(files, pinned_bytes=2 * GIB)["cgroup-memory"]
    assert check.status == "fail"
    assert "/slice/memory.max" in check.reason


def test_a_lock_limit_is_compared_with_one_rank(judge: Any) -> None:
    """The limit is each process's own: ranks do not add up."""
    files = {LIMITS: locked(8 * GIB)}
    assert judge(files, pinned_bytes=8 * GIB, ranks=4)["memlock"].status == "pass"
    assert judge(files, pinned_bytes=9 * GIB)["memlock"].status == "fail"


def test_a_full_numa_node_is_found(judge: Any) -> None:
    """An even share of the pinned memory must be free on every node."""
    text = f"Node 1 MemTotal: {256 << 20} kB\nNode 1 MemFree: {10 << 20} kB"
    files = {"sys/devices/system/node/node1/meminfo": text}
    check = judge(files, pinned_bytes=15 * GIB, ranks=2)["numa"]
    assert check.status == "warn"
    assert "node 1" in check.reason


def test_the_space_wanted_is_compared(judge: Any) -> None:
    """What is to be spilled must be free."""
    assert judge(spill(), spill_bytes=800 * GIB)["drive-space"].status == "pass"
    assert judge(spill(), spill_bytes=890 * GIB)["drive-space"].status == "warn"
    assert judge(spill(), spill_bytes=950 * GIB)["drive-space"].status == "fail"


def test_directories_on_one_file_system_want_its_space_together(judge: Any) -> None:
    """Each alone would fit; of another drive each has its own."""
    first = spill()["pagoda/spill-0.json"]
    for device, status in (("8:1", "fail"), ("8:2", "pass")):
        second = spill(real_path="/t", path="t", device=device)["pagoda/spill-0.json"]
        files = {"pagoda/spill-0.json": first, "pagoda/spill-1.json": second}
        assert judge(files, spill_bytes=500 * GIB)["drive-space"].status == status


def test_shared_spill_directories_are_found(judge: Any) -> None:
    """One directory inside another is shared; two on one file system share its speed."""
    inner = json.loads(spill()["pagoda/spill-0.json"])
    same = {"pagoda/spill-1.json": json.dumps({**inner, "real_path": "/s/b"})}
    assert judge({**spill(), **same})["drive-shared"].status == "fail"
    beside = {"pagoda/spill-1.json": json.dumps({**inner, "real_path": "/t"})}
    assert judge({**spill(), **beside})["drive-shared"].status == "warn"
    apart = {"pagoda/spill-1.json": json.dumps({**inner, "real_path": "/t", "device": "8:2"})}
    assert judge({**spill(), **apart})["drive-shared"].status == "pass"


def test_an_empty_tree_is_all_unknown_but_never_fails(tmp_path: Path) -> None:
    """Without any fact nothing is claimed: no crash, and no check fails or warns."""
    checks = host_checks(HostTree(tmp_path), Need())
    loud = [check.id for check in checks if check.status in ("fail", "warn")]
    assert loud == []
    assert ready(checks)
    gpu = {"driver", "cuda", "nccl", "peer-to-peer", "acs", "gpudirect", "pcie-width", "mig"}
    assert {c.id for c in checks if c.id in gpu and c.status == "unknown"} == gpu
    assert all(check.reason for check in checks)


def test_the_running_host_is_checked_without_a_crash(tmp_path: Path) -> None:
    """Whatever this machine is, every check answers, and the probe leaves nothing behind."""
    checks = host_checks(HostTree(), Need(spills=(tmp_path,), pinned_bytes=GIB))
    assert all(check.reason and check.confirm for check in checks)
    assert list(tmp_path.iterdir()) == []


def test_the_worst_status_wins() -> None:
    """fail beats warn beats unknown beats pass."""
    assert worst(["pass", "warn", "unknown"]) == "warn"
    assert worst(["pass", "unknown"]) == "unknown"
    assert worst(["fail", "warn"]) == "fail"
    assert worst([]) == "pass"
    assert not ready([Check("a", "fail", "", "")])


A = {"NCCL_IB_HCA": "mlx5_0", "CUDA_VISIBLE_DEVICES": "0", "PAGODA_DRIVE_PATH": "/s/a"}
B = {"NCCL_IB_HCA": "mlx5_0", "CUDA_VISIBLE_DEVICES": "1", "PAGODA_DRIVE_PATH": "/s/b"}


def test_two_engines_that_keep_apart_pass(judge: Any) -> None:
    """Own GPUs, nodes, ports and directories, and the same NCCL variables."""
    checks = judge(engines={"a": A, "b": B})
    found = {name: check.status for name, check in checks.items() if name.startswith("engines-")}
    assert set(found.values()) == {"pass"}
    assert len(found) == 5


@pytest.mark.parametrize(
    ("name", "status", "changes"),
    [
        ("engines-nccl", "warn", {"NCCL_IB_HCA": "mlx5_1"}),
        ("engines-nccl", "warn", {"NCCL_P2P_DISABLE": "1"}),
        ("engines-gpus", "fail", {"CUDA_VISIBLE_DEVICES": "0,1"}),
        ("engines-gpus", "fail", {"CUDA_VISIBLE_DEVICES": "all"}),
        ("engines-directories", "fail", {"PAGODA_DRIVE_PATH": "/s/a/"}),
        ("engines-directories", "fail", {"PAGODA_DRIVE_PATH": "/s/b, /s/a"}),
    ],
)
def test_engines_in_each_others_way_are_found(
    judge: Any, name: str, status: str, changes: dict[str, str]
) -> None:
    """A conflicting variable, a shared GPU or a shared directory is named with both engines."""
    check = judge(engines={"a": A, "b": {**B, **changes}})[name]
    assert check.status == status
    assert "a" in check.reason


def test_engines_on_one_node_share_its_memory(judge: Any) -> None:
    """GPUs of two engines on one NUMA node are told."""
    files = {f"{PCI}/0000:81:00.0/numa_node": "0"}
    check = judge(files, engines={"a": A, "b": B})["engines-numa"]
    assert check.status == "warn"


def test_engines_with_one_port_collide(judge: Any) -> None:
    """Two engines cannot listen on one port."""
    engines = {"a": {**A, "VLLM_PORT": "9000"}, "b": {**B, "PAGODA_SERVER_PORT": "9000"}}
    assert judge(engines=engines)["engines-ports"].status == "fail"
