"""Checks of ports, and of engines that share this host: variables, GPUs, nodes, directories."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from pagoda.advise.preflight.check import Check
from pagoda.advise.preflight.nccl import visible_gpus
from pagoda.advise.preflight.need import Need
from pagoda.machine.cpus import numa_nodes
from pagoda.machine.pci import pci_devices
from pagoda.machine.sockets import ephemeral_range, listening_ports
from pagoda.machine.tree import HostTree

__all__ = ["engine_checks", "environment_file", "port_check"]

Engines = Mapping[str, Mapping[str, str]]

# Two engines on one host must agree on these, or each measures the other's mistakes.
_SAME = (
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA",
)
# Ports and directories that two engines must not have in common.
_OWN_PORTS = (
    "PORT",
    "VLLM_PORT",
    "MASTER_PORT",
    "PAGODA_SERVER_PORT",
    "SGLANG_PORT",
)
_OWN_DIRECTORIES = (
    "PAGODA_DRIVE_PATH",
    "LMCACHE_LOCAL_DISK",
    "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR",
)


def port_check(tree: HostTree, need: Need) -> Check:
    """Whether the wanted ports are free, now and after a restart."""
    confirm = "ss -ltn; sysctl net.ipv4.ip_local_port_range"
    taken = listening_ports(tree)
    if taken is None:
        return Check("ports", "unknown", "/proc/net/tcp cannot be read", confirm)
    used = [port for port in need.ports if port in taken]
    if used:
        reason = f"port {used[0]} is already listened on"
        remedy = "choose another with --port, or stop what holds it (ss -ltnp)"
        return Check("ports", "fail", reason, confirm, remedy)
    given = ephemeral_range(tree)
    inside = [port for port in need.ports if given and given[0] <= port <= given[1]]
    if inside:
        reason = (
            f"port {inside[0]} is in the range of outgoing connections: one of them may hold it"
        )
        remedy = f"choose a port below {given[0] if given else 0}, or reserve it "
        remedy += f"(net.ipv4.ip_local_reserved_ports={inside[0]})"
        return Check("ports", "warn", reason, confirm, remedy)
    return Check("ports", "pass", f"free: {', '.join(map(str, need.ports))}", confirm)


def environment_file(text: str) -> dict[str, str]:
    """Variables of an engine: KEY=VALUE lines, `export` allowed, or /proc/PID/environ."""
    lines = text.split("\0") if "\0" in text else text.splitlines()
    found = {}
    for line in lines:
        name, mark, value = line.strip().removeprefix("export ").partition("=")
        if mark and name.strip().isidentifier():
            found[name.strip()] = value.strip().strip("'\"")
    return found


def engine_checks(tree: HostTree, engines: Engines) -> Iterator[Check]:
    """Checks of every pair of engines; none when fewer than two were given."""
    if len(engines) < 2:
        return
    yield _conflicts(engines)
    yield _gpus(engines)
    yield _nodes(tree, engines)
    yield _ports(engines)
    yield _directories(engines)


def _conflicts(engines: Engines) -> Check:
    confirm = "diff the NCCL_* lines of both environments"
    names = {n for variables in engines.values() for n in variables if n.startswith("NCCL_")}
    found = []
    for name in sorted(names):
        values = {engine: variables.get(name) for engine, variables in engines.items()}
        given = {value for value in values.values() if value is not None}
        if len(given) > 1 or (name in _SAME and len(set(values.values())) > 1):
            shown = ", ".join(f"{engine} has {value or 'none'}" for engine, value in values.items())
            found.append(f"{name} differs: {shown}")
    if found:
        remedy = "set the same in both, or say in a comment why they differ"
        return Check("engines-nccl", "warn", "; ".join(found), confirm, remedy)
    return Check("engines-nccl", "pass", "NCCL variables agree", confirm)


def _gpus(engines: Engines) -> Check:
    confirm = "grep CUDA_VISIBLE_DEVICES in both environments; nvidia-smi pmon -c 1"
    devices = {engine: visible_gpus(variables) for engine, variables in engines.items()}
    for (one, left), (two, right) in itertools.combinations(devices.items(), 2):
        both = (left or right or {"all"}) if left is None or right is None else left & right
        if both:
            shown = ", ".join(sorted(both))
            reason = (
                f"{one} and {two} both see GPU {shown}: each takes its share of the same memory"
            )
            remedy = "give each engine its own CUDA_VISIBLE_DEVICES"
            return Check("engines-gpus", "fail", reason, confirm, remedy)
    return Check("engines-gpus", "pass", "no GPU is seen by two engines", confirm)


def _nodes(tree: HostTree, engines: Engines) -> Check:
    confirm = "numactl --hardware; cat /sys/bus/pci/devices/*/numa_node"
    gpus = sorted((d for d in pci_devices(tree) if d.is_gpu), key=lambda device: device.address)
    if not gpus or any(gpu.numa_node is None for gpu in gpus):
        return Check("engines-numa", "unknown", "the GPUs' NUMA nodes cannot be read", confirm)
    nodes = {
        engine: {
            gpus[int(i)].numa_node
            for i in visible_gpus(v) or ()
            if i.isdigit() and int(i) < len(gpus)
        }
        for engine, v in engines.items()
    }
    if len(numa_nodes(tree)) < 2:
        return Check("engines-numa", "pass", "one NUMA node: it is shared in any case", confirm)
    for (one, left), (two, right) in itertools.combinations(nodes.items(), 2):
        if left & right:
            shared = ", ".join(
                str(node) for node in sorted(n for n in left & right if n is not None)
            )
            reason = (
                f"{one} and {two} have GPUs on the same NUMA node ({shared}): they share its memory"
            )
            remedy = "split GPUs by node, and count both engines' pinned memory against the node"
            return Check("engines-numa", "warn", reason, confirm, remedy)
    return Check("engines-numa", "pass", "the engines' GPUs are on different nodes", confirm)


def _ports(engines: Engines) -> Check:
    return _common(engines, _OWN_PORTS, "engines-ports", "port")


def _directories(engines: Engines) -> Check:
    return _common(engines, _OWN_DIRECTORIES, "engines-directories", "directory")


def _common(engines: Engines, names: tuple[str, ...], check: str, what: str) -> Check:
    """Fail when two engines name the same port or directory."""
    confirm = f"grep -E '{'|'.join(names)}' in both environments"
    owners: dict[str, str] = {}
    for engine, variables in engines.items():
        lists = (variables.get(name, "").split(",") for name in names)
        for value in {part.strip().rstrip("/") for parts in lists for part in parts} - {""}:
            other = owners.setdefault(value, engine)
            if other != engine:
                reason = f"{other} and {engine} both name {what} {value}"
                return Check(check, "fail", reason, confirm, f"give each engine its own {what}")
    return Check(check, "pass", f"no {what} is named twice", confirm)
