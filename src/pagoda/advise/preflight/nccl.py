"""NCCL's variables against what the host has, and against one another.

Meanings are those of NCCL's user guide ("Environment Variables"): P2P_LEVEL is the longest way
on which GPUs copy to each other directly, SOCKET_IFNAME and IB_HCA are lists of prefixes, with
`^` for all others and `=` for whole names. A fact that is not known contradicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pagoda.advise.preflight.check import Check, Status, worst
from pagoda.advise.topology.matrix import Matrix
from pagoda.advise.topology.parse import parse
from pagoda.machine.tree import HostTree

__all__ = ["Fabric", "fabric_of", "nccl_check", "visible_gpus"]

Variables = Mapping[str, str]
_Flaw = tuple[Status, str, str]  # how bad, what, and the remedy

_LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
_NEVER = ("LOC", "0")
_GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """How a host's GPUs and nodes are joined; None is for what is not known."""

    matrix: Matrix | None = None
    interfaces: Sequence[str] | None = None
    adapters: Sequence[str] | None = None  # of InfiniBand or RoCE


def fabric_of(tree: HostTree) -> Fabric:
    """Read a host's. A captured tree names no network interfaces."""
    taken = tree.command("topology")
    matrix = parse(taken.text) if taken.text and not taken.problem else None
    return Fabric(
        matrix=matrix if isinstance(matrix, Matrix) else None,
        interfaces=tree.names("sys/class/net") or None,
        adapters=tree.names("sys/class/infiniband"),
    )


def nccl_check(environments: Mapping[str, Variables], fabric: Fabric, *, name: str) -> Check:
    """Whether variables fit the host and each other, for every environment by its name."""
    found = [
        (owner, flaw)
        for owner, variables in environments.items()
        for flaw in _flaws(variables, fabric)
    ]
    confirm = "env | grep ^NCCL_; nvidia-smi topo -m; ls /sys/class/net /sys/class/infiniband"
    if not found:
        return Check(name, "pass", "NCCL variables fit the host and each other", confirm)
    reason = "; ".join(f"{owner}: {what}" for owner, (_, what, _) in found)
    remedies = dict.fromkeys(remedy for _, (_, _, remedy) in found)
    return Check(
        name,
        worst([status for _, (status, _, _) in found]),
        reason,
        confirm,
        f"{'; '.join(remedies)} ({_GUIDE})",
    )


def visible_gpus(variables: Variables) -> set[str] | None:
    """Device ids of an engine; None when it sees all of them."""
    text = variables.get("CUDA_VISIBLE_DEVICES", variables.get("NVIDIA_VISIBLE_DEVICES"))
    if text is None or text == "all":
        return None
    return {part.strip() for part in text.split(",") if part.strip()}


def _flaws(variables: Variables, fabric: Fabric) -> Iterator[_Flaw]:
    yield from _peers(variables, fabric)
    yield from _level(variables)
    yield from _shared_memory(variables)
    yield from _adapters(variables, fabric)
    yield from _interfaces(variables, fabric)


def _peers(variables: Variables, fabric: Fabric) -> Iterator[_Flaw]:
    """Direct copies that are switched off where NVLink is there, or asked for where it is not."""
    joined = _nvlink(variables, fabric.matrix)
    if joined is None:
        return
    off = _peers_off(variables)
    if off and joined:
        yield "warn", f"{off} keeps NVLink unused", f"unset {off.partition('=')[0]}"
    if variables.get("NCCL_P2P_LEVEL") == "NVL" and not joined:
        yield (
            "warn",
            "NCCL_P2P_LEVEL=NVL, and no two of its GPUs have NVLink: none copies directly",
            "unset NCCL_P2P_LEVEL, or set what `pagoda topology` names",
        )


def _nvlink(variables: Variables, matrix: Matrix | None) -> bool | None:
    """Whether two of an engine's GPUs have NVLink; None when unknown, or when it has one GPU."""
    if matrix is None:
        return None
    seen = visible_gpus(variables)
    gpus = [gpu for gpu in matrix.gpus if seen is None or str(gpu) in seen]
    if len(gpus) < 2:  # ids of another kind (UUIDs), too
        return None
    return any(other in gpus for gpu in gpus for other in matrix.peers(gpu))


def _peers_off(variables: Variables) -> str:
    """The variable that switches direct copies off, with its value; "" when none does."""
    if variables.get("NCCL_P2P_DISABLE") == "1":
        return "NCCL_P2P_DISABLE=1"
    level = variables.get("NCCL_P2P_LEVEL")
    return f"NCCL_P2P_LEVEL={level}" if level in _NEVER else ""


def _level(variables: Variables) -> Iterator[_Flaw]:
    level = variables.get("NCCL_P2P_LEVEL")
    if level is None:
        return
    if level not in _LEVELS and not level.isdecimal():
        yield (
            "warn",
            f"NCCL_P2P_LEVEL={level} is no level",
            f"use one of {', '.join(_LEVELS)}",
        )
    if variables.get("NCCL_P2P_DISABLE") == "1" and level not in _NEVER:
        yield (
            "warn",
            f"NCCL_P2P_DISABLE=1 and NCCL_P2P_LEVEL={level} contradict each other",
            "unset one of NCCL_P2P_DISABLE and NCCL_P2P_LEVEL",
        )


def _shared_memory(variables: Variables) -> Iterator[_Flaw]:
    off = _peers_off(variables)
    if off and variables.get("NCCL_SHM_DISABLE") == "1":
        yield (
            "warn",
            f"{off} and NCCL_SHM_DISABLE=1: GPUs of one host talk over the network",
            "unset NCCL_SHM_DISABLE",
        )


def _adapters(variables: Variables, fabric: Fabric) -> Iterator[_Flaw]:
    disabled, wanted = variables.get("NCCL_IB_DISABLE") == "1", variables.get("NCCL_IB_HCA")
    if disabled and wanted:
        yield (
            "warn",
            f"NCCL_IB_DISABLE=1 and NCCL_IB_HCA={wanted} contradict each other",
            "unset one of NCCL_IB_DISABLE and NCCL_IB_HCA",
        )
    if fabric.adapters is None:
        return
    if disabled and fabric.adapters:
        shown = ", ".join(fabric.adapters[:4])
        yield "warn", f"NCCL_IB_DISABLE=1 keeps {shown} unused", "unset NCCL_IB_DISABLE"
    if wanted and not disabled and not _selected(_without_ports(wanted), fabric.adapters):
        there = ", ".join(fabric.adapters[:4]) or "none"
        yield (
            "warn",
            f"NCCL_IB_HCA={wanted} selects no adapter (there: {there}): nodes talk over TCP",
            "name adapters of this host in NCCL_IB_HCA, or unset it",
        )


def _interfaces(variables: Variables, fabric: Fabric) -> Iterator[_Flaw]:
    """NCCL takes prefixes; Gloo whole names, separated by commas."""
    if fabric.interfaces is None:
        return
    gloo = variables.get("GLOO_SOCKET_IFNAME")
    wanted = {
        "NCCL_SOCKET_IFNAME": variables.get("NCCL_SOCKET_IFNAME"),
        "GLOO_SOCKET_IFNAME": f"={gloo}" if gloo else None,
    }
    for name, value in wanted.items():
        if value and not _selected(value, fabric.interfaces):
            there = ", ".join(fabric.interfaces[:6])
            yield (
                "fail",
                f"{name}={variables[name]} selects no network interface (there: {there})",
                f"name an interface of this host in {name}, or unset it",
            )


def _selected(value: str, names: Sequence[str]) -> list[str]:
    """The names that a list of prefixes selects."""
    others = value.startswith("^")
    value = value.removeprefix("^")
    whole = value.startswith("=")
    parts = [part for part in value.removeprefix("=").split(",") if part]
    matched = {
        name
        for name in names
        for part in parts
        if name == part or (not whole and name.startswith(part))
    }
    return [name for name in names if (name in matched) != others]


def _without_ports(value: str) -> str:
    """NCCL_IB_HCA may name a port behind each adapter: mlx5_0:1."""
    return ",".join(part.partition(":")[0] for part in value.split(","))
