"""Readers of /proc and /sys: they tell what is there, and None where nothing is."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagoda.machine.commands import capture
from pagoda.machine.cpus import clock_source, governors, is_virtual_machine, numa_nodes, services
from pagoda.machine.limits import (
    UNLIMITED,
    ResourceLimit,
    cgroup_limits,
    has_capability,
    meminfo,
    resource_limit,
)
from pagoda.machine.mounts import mount_of, mounts, shm_size_bytes
from pagoda.machine.pci import acs_bridges, acs_redirects, iommu_groups, pci_devices
from pagoda.machine.sockets import ephemeral_range, listening_ports
from pagoda.machine.software import allowed, environment, module_version, packages, smi_versions
from pagoda.machine.spill import (
    SpillFacts,
    facts_from_json,
    locked_files,
    probe_direct,
    spill_facts,
)
from pagoda.machine.tree import HostTree

LINUX = sys.platform == "linux"


def tree(root: Path, files: Mapping[str, str]) -> HostTree:
    """A tree of some files."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return HostTree(root)


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    """No file, a directory and bytes that are no text never raise."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    host = HostTree(tmp_path)
    assert host.text("none") is None
    assert host.text(".") is None
    assert host.number("bytes") is None
    assert host.names("none") == []
    assert host.text("\0") is None


def test_only_the_root_directory_is_the_running_host(tmp_path: Path) -> None:
    """Programs are run for `/` alone; a captured tree answers from its files."""
    host = tree(tmp_path, {"pagoda/commands/mig.txt": "0, Disabled"})
    assert HostTree().live
    assert not host.live
    assert host.command("mig").text == "0, Disabled"
    assert "no output of topology" in host.command("topology").problem


def test_limits_are_read_with_their_names_of_several_words(tmp_path: Path) -> None:
    """A row is found by its whole name; "unlimited" is the largest number."""
    text = "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  65536  unlimited  bytes\n"
    host = tree(tmp_path, {"proc/self/limits": text})
    assert resource_limit(host, "Max locked memory") == ResourceLimit(65536, UNLIMITED)
    assert resource_limit(host, "Max open files") is None


def test_capabilities_are_bits(tmp_path: Path) -> None:
    """Bit 14 of the effective set is CAP_IPC_LOCK."""
    host = tree(tmp_path, {"proc/self/status": "Name: x\nCapEff:\t0000000000004000\n"})
    assert has_capability(host, 14) is True
    assert has_capability(host, 21) is False
    assert has_capability(HostTree(tmp_path / "none"), 14) is None


def test_memory_is_in_bytes_and_counts_are_counts(tmp_path: Path) -> None:
    """Rows with kB are multiplied, others are not."""
    host = tree(tmp_path, {"proc/meminfo": "MemTotal: 8 kB\nHugePages_Total:   3\nbad\n"})
    assert meminfo(host) == {"MemTotal": 8192, "HugePages_Total": 3}


def test_every_group_above_is_asked_for_its_limit(tmp_path: Path) -> None:
    """Version 2 and version 1 limits are collected up to the root."""
    files = {
        "proc/self/cgroup": "0::/a/b\n3:memory:/c\n",
        "sys/fs/cgroup/a/memory.max": "100",
        "sys/fs/cgroup/a/b/memory.max": "max",
        "sys/fs/cgroup/a/b/memory.current": "7",
        "sys/fs/cgroup/memory/c/memory.limit_in_bytes": "9223372036854771712",
    }
    found = {limit.path: limit for limit in cgroup_limits(tree(tmp_path, files))}
    assert found["/sys/fs/cgroup/a/memory.max"].limit_bytes == 100
    assert found["/sys/fs/cgroup/a/b/memory.max"].limit_bytes == UNLIMITED
    assert found["/sys/fs/cgroup/a/b/memory.max"].used_bytes == 7
    assert found["/sys/fs/cgroup/memory/c/memory.limit_in_bytes"].limit_bytes == UNLIMITED


MOUNTS = (
    "23 22 259:3 / /data rw,noatime shared:1 - xfs /dev/nvme1n1 rw\n"
    "24 22 0:25 / /data/my\\040dir rw - tmpfs tmpfs rw,size=1024k\n"
    "22 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw,discard\n"
    "broken line\n"
)


def test_the_mount_of_a_path_is_the_nearest_above_it(tmp_path: Path) -> None:
    """The longest mount point wins, blanks in it are decoded, and options of both kinds count."""
    found = mounts(tree(tmp_path, {"proc/self/mountinfo": MOUNTS}))
    xfs, inner, root = (
        mount_of(found, Path(path)) for path in ("/data/x", "/data/my dir/x", "/database")
    )
    assert xfs is not None
    assert (xfs.kind, xfs.device, "noatime" in xfs.options) == ("xfs", "259:3", True)
    assert inner is not None
    assert inner.kind == "tmpfs"
    assert root is not None
    assert root.kind == "ext4"
    assert "discard" in root.options


def test_old_mount_tables_serve_where_there_is_no_mountinfo(tmp_path: Path) -> None:
    """/proc/mounts has type and options, and /dev/shm's size among them."""
    host = tree(tmp_path, {"proc/mounts": "shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0\n"})
    assert shm_size_bytes(host) == 64 << 20
    assert shm_size_bytes(HostTree(tmp_path / "none")) is None


def test_numa_nodes_have_processors_and_memory(tmp_path: Path) -> None:
    """Nodes are in order of their numbers, not of their names."""
    base = "sys/devices/system/node"
    files = {f"{base}/node{n}/cpulist": str(n) for n in (10, 2)}
    files[f"{base}/node2/meminfo"] = "Node 2 MemTotal:  64 kB\nNode 2 MemFree:  32 kB"
    found = numa_nodes(tree(tmp_path, files))
    assert [node.id for node in found] == [2, 10]
    assert (found[0].total_bytes, found[0].free_bytes) == (65536, 32768)
    assert found[1].total_bytes is None


def test_processors_tell_governors_clock_and_guest(tmp_path: Path) -> None:
    """Governors are counted; a guest is known by its processor's flags."""
    base = "sys/devices/system/cpu"
    files = {f"{base}/cpu{n}/cpufreq/scaling_governor": "performance" for n in range(3)}
    files[f"{base}/cpufreq/boost"] = "1"
    files["sys/devices/system/clocksource/clocksource0/current_clocksource"] = "tsc\n"
    files["proc/cpuinfo"] = "flags\t\t: fpu hypervisor sse\n"
    host = tree(tmp_path, files)
    assert governors(host) == {"performance": 3}
    assert clock_source(host) == "tsc"
    assert is_virtual_machine(host) is True
    assert is_virtual_machine(HostTree(tmp_path / "none")) is None


def test_only_known_services_are_ever_named(tmp_path: Path) -> None:
    """Other names in a captured list are dropped."""
    host = tree(tmp_path, {"pagoda/services.txt": "chronyd\nsomebodys-program\n"})
    assert services(host) == {"chronyd"}
    assert services(HostTree(tmp_path / "none")) is None


def device(address: str, vendor: str, kind: str) -> dict[str, str]:
    """Files of a PCI device."""
    base = f"sys/bus/pci/devices/{address}"
    return {f"{base}/vendor": vendor, f"{base}/class": kind, f"{base}/current_link_width": "255"}


def test_devices_are_told_apart_by_class(tmp_path: Path) -> None:
    """GPU, NVSwitch, NVMe and bridge; a width of 255 means that there is none."""
    files = device("0000:01:00.0", "0x10de", "0x030200")
    files |= device("0000:02:00.0", "0x10de", "0x068000")
    files |= device("0000:03:00.0", "0x144d", "0x010802")
    files |= device("0000:04:00.0", "0x8086", "0x060400")
    files |= device("not-an-address", "0x10de", "0x030200")
    files["sys/kernel/iommu_groups/0/type"] = "DMA"
    host = tree(tmp_path, files)
    gpu, switch, drive, bridge = pci_devices(host)
    assert (gpu.is_gpu, switch.is_nvswitch, drive.is_nvme, bridge.is_bridge) == (True,) * 4
    assert not gpu.is_nvswitch
    assert not switch.is_gpu
    assert gpu.width is None
    assert iommu_groups(host) == 1
    assert acs_bridges(host, [bridge]) is None


def config(*capabilities: tuple[int, int]) -> bytes:
    """A configuration space with extended capabilities: id and control word of each."""
    space = bytearray(4096)
    for k, (identifier, control) in enumerate(capabilities):
        offset = 0x100 + 0x20 * k
        following = offset + 0x20 if k + 1 < len(capabilities) else 0
        struct.pack_into("<I", space, offset, identifier | 1 << 16 | following << 20)
        struct.pack_into("<H", space, offset + 6, control)
    return bytes(space)


def test_acs_is_found_along_the_chain_of_capabilities() -> None:
    """The control word's redirect bits count; a short space tells nothing, a loop ends."""
    assert acs_redirects(config((0x01, 0xFFFF), (0x0D, 0x001D))) is True
    assert acs_redirects(config((0x0D, 0x0010))) is False
    assert acs_redirects(config((0x01, 0xFFFF))) is False
    assert acs_redirects(bytes(64)) is None
    loop = bytearray(config((0x01, 0)))
    struct.pack_into("<I", loop, 0x100, 0x01 | 0x100 << 20)
    assert acs_redirects(bytes(loop)) is False


def test_ports_in_listen_state_are_found_in_both_families(tmp_path: Path) -> None:
    """State 0A is LISTEN; established connections are no listeners."""
    head = "  sl  local_address rem_address   st\n"
    files = {
        "proc/net/tcp": head + "0: 0100007F:1F40 0:0 0A\n1: 0100007F:0050 0:0 01\nx\n",
        "proc/net/tcp6": head + "0: 00000000000000000000000000000000:7530 0:0 0A\n",
        "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999",
    }
    host = tree(tmp_path, files)
    assert listening_ports(host) == {8000, 30000}
    assert ephemeral_range(host) == (32768, 60999)
    assert listening_ports(HostTree(tmp_path / "none")) is None


def test_driver_versions_are_read_in_both_forms(tmp_path: Path) -> None:
    """The proprietary and the open module write different first lines."""
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n"
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.10.01  Release\n"
    path = "proc/driver/nvidia/version"
    assert module_version(tree(tmp_path / "a", {path: closed})) == "550.54.15"
    assert module_version(tree(tmp_path / "b", {path: opened})) == "570.10.01"
    assert module_version(HostTree(tmp_path / "none")) is None


def test_nvidia_smi_tells_driver_and_cuda_or_what_is_wrong(tmp_path: Path) -> None:
    """A version mismatch is reported on standard output, and kept as the problem."""
    path = "pagoda/commands/nvidia-smi.txt"
    good = tree(tmp_path / "a", {path: "| Driver Version: 570.10   CUDA Version: 12.8 |"})
    bad = tree(tmp_path / "b", {path: "Failed: Driver/library version mismatch\nNVML: 560"})
    assert smi_versions(good) == ({"driver": "570.10", "cuda": "12.8"}, "")
    assert "mismatch" in smi_versions(bad)[1]


def test_packages_keep_every_version_on_the_path(tmp_path: Path) -> None:
    """Two versions of one name are both kept; other packages are not."""
    text = "nvidia_nccl_cu12==2.20.5\nnvidia-nccl-cu12==2.27.3\nrequests==2.0\n"
    host = tree(tmp_path, {"pagoda/packages.txt": text})
    assert packages(host) == {"nvidia-nccl-cu12": ["2.20.5", "2.27.3"]}
    assert packages(HostTree(tmp_path / "none")) is None


def test_secrets_are_never_read_from_an_environment(tmp_path: Path) -> None:
    """Names that may hold a secret, and all that steer no GPU, are left out."""
    pairs = {
        "NCCL_DEBUG": "INFO",
        "VLLM_API_KEY": "s",
        "PAGODA_SEAL_SALT": "s",
        "HOME": "/h",
        "LD_PRELOAD": "x.so",
    }
    assert allowed(pairs.items()) == {"NCCL_DEBUG": "INFO", "LD_PRELOAD": "x.so"}
    host = tree(tmp_path, {"pagoda/environ.txt": "NCCL_DEBUG=INFO\nSGLANG_TOKEN=t\nbroken"})
    assert environment(host) == {"NCCL_DEBUG": "INFO"}


def test_programs_are_captured_with_their_failures() -> None:
    """Output, a missing program, a status and a deadline are all facts."""
    assert capture(["sh", "-c", "echo yes"]).text == "yes\n"
    assert "not installed" in capture(["pagoda-no-such-program"]).problem
    failed = capture(["sh", "-c", "echo part; echo why >&2; exit 3"])
    assert failed.text == "part\n"
    assert "status 3: why" in failed.problem
    assert "did not answer" in capture(["sleep", "5"], timeout_s=0.05).problem


@pytest.mark.skipif(not LINUX, reason="O_DIRECT: this platform has none")
def test_the_probe_of_a_directory_leaves_nothing_behind(tmp_path: Path) -> None:
    """The probe file is removed whether or not O_DIRECT works."""
    answer = probe_direct(tmp_path)
    assert answer == "works" or "O_DIRECT" in answer
    assert list(tmp_path.iterdir()) == []
    assert "cannot create" in probe_direct(tmp_path / "none")


@pytest.mark.skipif(not LINUX, reason="O_DIRECT: this platform has none")
def test_a_probe_that_reads_back_other_bytes_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are compared: a file system that loses them is not called working."""
    real = os.preadv

    def damaged(fd: int, buffers: Any, offset: int) -> int:
        count = real(fd, buffers, offset)
        buffers[0][7] ^= 1
        return count

    if probe_direct(tmp_path) != "works":
        pytest.skip("O_DIRECT: the temporary directory does not take it")
    monkeypatch.setattr(os, "preadv", damaged)
    assert "other bytes" in probe_direct(tmp_path)


def test_facts_of_a_spill_directory_survive_json(tmp_path: Path) -> None:
    """What a capture writes is what a reader gets; other text is a ValueError."""
    facts = spill_facts(HostTree(), tmp_path)
    assert facts.problem == ""
    assert facts.size_bytes
    assert facts_from_json(facts.as_json()) == facts
    for text in ("[]", "{}", "nonsense"):
        with pytest.raises(ValueError, match=r"."):
            facts_from_json(text)


def test_a_missing_directory_is_a_problem_not_an_error(tmp_path: Path) -> None:
    """A directory that is not there, or is a file, says so."""
    (tmp_path / "file").write_text("")
    assert "No such" in spill_facts(HostTree(), tmp_path / "none").problem
    assert "not a directory" in spill_facts(HostTree(), tmp_path / "file").problem


def test_a_lock_on_a_file_inside_is_found(tmp_path: Path) -> None:
    """/proc/locks names device and inode of what running processes hold."""
    lock = tmp_path / "lock"
    lock.write_text("")
    state = lock.stat()
    place = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    host = tree(tmp_path / "t", {"proc/locks": f"1: FLOCK  ADVISORY  WRITE 12 {place} 0 EOF\n"})
    assert locked_files(host, tmp_path) == ("lock",)
    assert locked_files(HostTree(tmp_path / "none"), tmp_path) == ()


READERS = {
    "proc/self/limits": lambda host: resource_limit(host, "Max locked memory"),
    "proc/self/status": lambda host: has_capability(host, 14),
    "proc/meminfo": meminfo,
    "proc/self/cgroup": cgroup_limits,
    "proc/self/mountinfo": mounts,
    "proc/mounts": shm_size_bytes,
    "proc/net/tcp": listening_ports,
    "proc/driver/nvidia/version": module_version,
    "pagoda/packages.txt": packages,
    "pagoda/environ.txt": environment,
    "pagoda/commands/nvidia-smi.txt": smi_versions,
    "proc/cpuinfo": is_virtual_machine,
}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(max_size=120))
def test_no_text_in_a_file_raises(tmp_path: Path, text: str) -> None:
    """Whatever a file of /proc holds, its reader answers."""
    for path, reader in READERS.items():
        host = tree(tmp_path, {path: text.encode("utf-8", "replace").decode()})
        reader(host)
        assert host.text(path) is not None


def test_spill_facts_compare_by_value() -> None:
    """Facts are frozen values: equal fields are equal facts."""
    assert SpillFacts("a", "a") == SpillFacts("a", "a")
    assert SpillFacts("a", "a") != SpillFacts("a", "b")
