"""A captured tar holds facts, and nothing that names this host or its people."""

from __future__ import annotations

import getpass
import io
import os
import socket
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from pagoda.machine.collect import captured_files, scrub, unpack_tar, write_tar
from pagoda.machine.spill import SpillFacts
from pagoda.machine.tree import HostTree

SECRETS = {
    "address": "10.1.2.3",
    "address and port": "192.168.0.7:29500",
    "address of six": "fe80:0000:0000:0000:0202:b3ff:fe1e:8329",
    "hardware address": "00:1a:2b:3c:4d:5e",
    "unique id of a GPU": "GPU-12345678-9abc-def0-1234-56789abcdef0",
    "unique id": "12345678-9abc-def0-1234-56789abcdef0",
    "home directory": "/home/somebody/models",
    "serial number": "Serial Number: 1320920000001",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_what_names_somebody_is_taken_out(secret: str) -> None:
    """Each kind of name is gone, and the words around it stay."""
    text = scrub(f"before {secret} after")
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert secret.rpartition(" ")[2] not in text


def test_facts_are_not_taken_for_names() -> None:
    """Versions, PCI addresses, sizes and processor lists stay as they are."""
    text = "550.54.15 0000:81:00.0 00000000:81:00.0 0-31,64-95 16.0 GT/s 12.8 2.27.3"
    assert scrub(text) == text


def busy(root: Path) -> HostTree:
    """A tree in which every file that could, names somebody."""
    files: Mapping[str, str] = {
        "proc/meminfo": "MemTotal: 1 kB",
        "proc/cmdline": "root=UUID=12345678-9abc-def0-1234-56789abcdef0 iommu=pt ip=10.0.0.1 "
        "key=hush",
        "proc/self/status": "Name: somebodys\nUid: 1000\nCapEff:\t0000000000004000",
        "proc/self/cgroup": "0::/user.slice/user-somebody.slice",
        "sys/fs/cgroup/user.slice/memory.max": "77",
        "proc/net/tcp": "head\n 0: 0A00000A:1F40 0:0 0A",
        "proc/self/mountinfo": "1 0 8:1 / / rw - ext4 /dev/disk/somebody rw\n"
        "2 0 0:9 / /home/somebody rw - nfs nas.example.org:/secret rw,addr=10.0.0.1",
        "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de",
        "sys/bus/pci/devices/0000:01:00.0/class": "0x030200",
        "sys/bus/pci/devices/0000:01:00.0/serial": "1320920000001",
        "pagoda/environ.txt": "NCCL_DEBUG=INFO\nNCCL_COMM_ID=10.0.0.1:99\nVLLM_HOST_IP=10.0.0.1\n"
        "NCCL_TOPO_FILE=/home/somebody/t.xml\nCUDA_VISIBLE_DEVICES=0\nNCCL_HOSTID=somebody",
        "pagoda/commands/nvidia-smi.txt": "Driver Version: 570.10\n| Processes: somebodys |",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return HostTree(root)


def test_a_capture_keeps_facts_and_drops_names(tmp_path: Path) -> None:
    """Limits, ports and settings are there; people, hosts, addresses and serials are not."""
    spill = SpillFacts("/home/somebody/spill", "/home/somebody/spill", direct="works")
    files = captured_files(busy(tmp_path), [spill])
    everything = "\n".join([*files, *files.values()])
    for name in ("somebody", "example.org", "10.0.0.1", "0A00000A", "hush", "1320920000001"):
        assert name not in everything, name
    assert files["sys/fs/cgroup/g0/memory.max"].strip() == "77"
    assert files["proc/self/cgroup"].strip() == "0::/g0/g1"
    assert "iommu=pt" in files["proc/cmdline"]
    assert ":1F40 " in files["proc/net/tcp"]
    assert "NCCL_DEBUG=INFO" in files["pagoda/environ.txt"]
    assert "Driver Version: 570.10" in files["pagoda/commands/nvidia-smi.txt"]
    assert '"direct": "works"' in files["pagoda/spill-0.json"]


def test_the_running_hosts_capture_has_no_name_of_host_or_user(tmp_path: Path) -> None:
    """Neither this host's name nor its user's, unless they say nothing, is in the tar."""
    target = tmp_path / "host.tar"
    write_tar(captured_files(HostTree()), target)
    raw = target.read_bytes().decode("utf-8", "replace")
    names = {socket.gethostname(), os.environ.get("USER") or getpass.getuser()}
    for name in names - {"root", "localhost", "host"}:
        assert len(name) < 3 or f" {name} " not in raw.replace("\n", " ")
    assert len(raw) > 0


def test_a_tar_is_anonymous_and_reproducible(tmp_path: Path) -> None:
    """No owner, no time, sorted names: the same files make the same bytes."""
    files = {"b": "2\n", "a": "1\n"}
    one, two = tmp_path / "1.tar", tmp_path / "2.tar"
    write_tar(files, one)
    write_tar(dict(reversed(files.items())), two)
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == ["a", "b"]
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 0)}


def test_unpacking_stays_inside_its_directory(tmp_path: Path) -> None:
    """A tar from elsewhere may hold paths that climb out, links and devices: none is followed."""
    source = tmp_path / "hostile.tar"
    with tarfile.open(source, "w") as tar:
        for name in ("../outside", "/outside", "a/../../outside", "proc/meminfo"):
            member = tarfile.TarInfo(name)
            member.size = 2
            tar.addfile(member, io.BytesIO(b"ok"))
        for name, kind in (("link", tarfile.SYMTYPE), ("pipe", tarfile.FIFOTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "../outside"
            tar.addfile(member)
    inside = tmp_path / "inside"
    unpack_tar(source, inside)
    assert [p.relative_to(inside).as_posix() for p in inside.rglob("*") if not p.is_dir()] == [
        "proc/meminfo"
    ]
    assert not (tmp_path / "outside").exists()
