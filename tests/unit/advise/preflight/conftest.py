"""A captured tree of a healthy host, hand-made, from which tests break one fact at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pagoda.advise.preflight.check import Check
from pagoda.advise.preflight.need import Need
from pagoda.advise.preflight.run import host_checks
from pagoda.machine.tree import HostTree

GIB_KB = 1 << 20
PEERS = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n  X    = Self\n"
SMI = "| NVIDIA-SMI 570.10   Driver Version: 570.10   CUDA Version: 12.8 |\n"
SPILL = (
    '{"path": "spill-0", "real_path": "spill-0", "device": "259:1", "file_system": "xfs", '
    '"options": ["rw", "noatime"], "drive": "nvme0n1", "rotational": false, "sector_bytes": 512, '
    '"size_bytes": 4000000000000, "free_bytes": 3000000000000, "mode": 448, "direct": "works", '
    '"wear": {"used_percent": 4, "spare_percent": 100, "warning": 0}}'
)


def pci(address: str, vendor: str, kind: str, node: int, link: str = "16 16") -> dict[str, str]:
    """The files of one PCI device; `link` is its width now and at most."""
    base = f"sys/bus/pci/devices/{address}"
    now, most = link.split()
    return {
        f"{base}/vendor": vendor,
        f"{base}/class": kind,
        f"{base}/numa_node": str(node),
        f"{base}/current_link_width": now,
        f"{base}/max_link_width": most,
        f"{base}/current_link_speed": "16.0 GT/s PCIe",
        f"{base}/max_link_speed": "16.0 GT/s PCIe",
    }


def node(number: int) -> dict[str, str]:
    """The files of one NUMA node with 256 GiB, 200 of them free."""
    base = f"sys/devices/system/node/node{number}"
    sizes = (("MemTotal", 256), ("MemFree", 200))
    lines = [f"Node {number} {name}: {size * GIB_KB} kB" for name, size in sizes]
    return {
        f"{base}/cpulist": f"{number * 8}-{number * 8 + 7}",
        f"{base}/meminfo": "\n".join(lines),
    }


def healthy() -> dict[str, str]:
    """Every file of a host that passes all checks."""
    memory = {"MemTotal": 512, "MemAvailable": 400, "CommitLimit": 600, "Committed_AS": 20}
    files = {
        "proc/self/limits": "Max locked memory   unlimited   unlimited   bytes\n"
        "Max address space   unlimited   unlimited   bytes",
        "proc/self/status": "CapEff:\t0000000000000000",
        "proc/meminfo": "\n".join(f"{name}: {size * GIB_KB} kB" for name, size in memory.items()),
        "proc/self/cgroup": "0::/pod",
        "sys/fs/cgroup/pod/memory.max": "max",
        "proc/sys/vm/overcommit_memory": "0",
        "proc/sys/vm/max_map_count": "262144",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "proc/sys/kernel/osrelease": "6.8.0-45-generic",
        "proc/sys/kernel/numa_balancing": "0",
        "proc/self/mountinfo": "25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=67108864k",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        "proc/cpuinfo": "flags\t\t: fpu sse",
        "proc/cmdline": "quiet iommu=pt",
        "proc/modules": "nvidia 1 0\nnvidia_peermem 1 0",
        "sys/class/infiniband/mlx5_0/present": "",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.10  x",
        "proc/net/tcp": "  sl  local_address rem_address   st\n   0: 0100007F:1F91 0:0000 0A",
        "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999",
        "pagoda/services.txt": "chronyd",
        "pagoda/acs.txt": "",
        "pagoda/packages.txt": "torch==2.8.0+cu128\nnvidia-nccl-cu12==2.27.3\n"
        "nvidia-cuda-runtime-cu12==12.8.90",
        "pagoda/environ.txt": "NCCL_DEBUG=WARN",
        "pagoda/commands/nvidia-smi.txt": SMI,
        "pagoda/commands/peers-read.txt": PEERS,
        "pagoda/commands/peers-write.txt": PEERS,
        "pagoda/commands/mig.txt": "0, Disabled\n1, [N/A]",
        "pagoda/spill-0.json": SPILL,
    }
    files |= node(0) | node(1)
    files |= pci("0000:01:00.0", "0x10de", "0x030200", 0)
    files |= pci("0000:81:00.0", "0x10de", "0x030200", 1)
    return files | pci("0000:02:00.0", "0x144d", "0x010802", 0, "4 4")


Judge = Callable[..., dict[str, Check]]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Check a tree made of the healthy files with some changed; None removes a file."""

    def run(changes: Mapping[str, str | None] | None = None, **need: object) -> dict[str, Check]:
        files: dict[str, str | None] = {**healthy(), **(changes or {})}
        for path, text in files.items():
            if text is not None:
                (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / path).write_text(text)
        checks = host_checks(HostTree(tmp_path), Need(**need))  # type: ignore[arg-type]
        assert len({check.id for check in checks}) == len(checks)
        return {check.id: check for check in checks}

    return run
