"""What to set and pass for a group: environment with a reason each, binding, engine flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.advise.topology.links import Link
from pagoda.advise.topology.matrix import Matrix
from pagoda.advise.topology.ring import order

__all__ = ["Setting", "binding", "engine_flags", "environment", "near_adapters"]

# NCCL 2.20 and later know these levels; NODE is not among them (PHB covers it).
_ADAPTER_RANK = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3, "SYS": 4}


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable with the reason for it."""

    name: str
    value: str
    why: str


def environment(matrix: Matrix, group: Sequence[int], *, forced: bool = False) -> list[Setting]:
    """Variables for an engine that runs on this group, in the order in which to read them."""
    ring = order(matrix, group)
    found = [
        Setting("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "CUDA then numbers GPUs as nvidia-smi does"),
        Setting(
            "CUDA_VISIBLE_DEVICES",
            ",".join(map(str, ring)),
            "this group only, in ring order: neighbours have the fastest links",
        ),
    ]
    found += _peer_level(matrix, group, forced=forced)
    return found + _adapters(matrix, group)


def _peer_level(matrix: Matrix, group: Sequence[int], *, forced: bool) -> list[Setting]:
    kinds = _kinds(matrix, group)
    if forced or not kinds:
        return []
    if kinds == {"NV"}:
        return [
            Setting("NCCL_P2P_LEVEL", "NVL", "all pairs have NVLink: never fall back to PCIe peers")
        ]
    if kinds <= {"PIX", "PXB"}:
        return [
            Setting(
                "NCCL_P2P_LEVEL", "PXB", "peers copy below the PCIe switches, not through the CPU"
            )
        ]
    return []


def _kinds(matrix: Matrix, group: Sequence[int]) -> set[str]:
    members = sorted(group)
    links = (matrix.link(a, b) for k, a in enumerate(members) for b in members[k + 1 :])
    return {link.kind for link in links if link is not None}


def near_adapters(matrix: Matrix, group: Sequence[int]) -> tuple[str, list[str]] | None:
    """The tightest class from the group to any adapter, and the adapters at that class."""
    best: dict[str, Link] = {}
    for gpu in group:
        for name, link in matrix.nics.get(gpu, {}).items():
            if link.kind in _ADAPTER_RANK and _closer(link, best.get(name)):
                best[name] = link
    if not best:
        return None
    kind = min((link.kind for link in best.values()), key=_ADAPTER_RANK.__getitem__)
    return kind, [name for name, link in best.items() if link.kind == kind]


def _closer(link: Link, other: Link | None) -> bool:
    return other is None or _ADAPTER_RANK[link.kind] < _ADAPTER_RANK[other.kind]


def _adapters(matrix: Matrix, group: Sequence[int]) -> list[Setting]:
    near = near_adapters(matrix, group)
    if near is None or near[0] == "SYS" or any(name.startswith("NIC") for name in near[1]):
        return []
    kind, names = near
    found = [
        Setting(
            "NCCL_IB_HCA",
            "=" + ",".join(names),
            f"across nodes, use the adapters that are {kind} from this group ('=': exact names)",
        )
    ]
    if kind in ("PXB", "PHB"):
        why = f"the nearest adapters are {kind}: let them reach GPU memory directly up to there"
        found.append(Setting("NCCL_NET_GDR_LEVEL", kind, why))
    return found


def binding(matrix: Matrix, group: Sequence[int]) -> list[tuple[list[int], str]]:
    """How to bind ranks to processors and memory: GPUs of one place with their command prefix."""
    places: dict[tuple[str | None, str | None], list[int]] = {}
    for gpu in sorted(group):
        near = matrix.affinity.get(gpu)
        if near is not None and near.place is not None:
            places.setdefault((near.numa, near.cpus), []).append(gpu)
    return [(gpus, _bind(numa, cpus)) for (numa, cpus), gpus in places.items()]


def _bind(numa: str | None, cpus: str | None) -> str:
    if numa is not None and numa.isdigit():
        return f"numactl --cpunodebind={numa} --membind={numa}"
    # A list of nodes holds GPU memory too (GB200), so only the processors are bound.
    return f"numactl --physcpubind={cpus}" if cpus is not None else f"numactl --cpunodebind={numa}"


def engine_flags(matrix: Matrix, group: Sequence[int], copies: int) -> dict[str, str]:
    """Command-line flags for vLLM and SGLang; `copies` is how many such groups the host has."""
    size = len(group)
    all_nvlink = _kinds(matrix, group) == {"NV"}
    plain = "" if all_nvlink or size <= 2 else " --disable-custom-all-reduce"
    vllm = f"--tensor-parallel-size {size}{plain}"
    sglang = f"--tp-size {size}{plain}{_numa_nodes(matrix, order(matrix, group))}"
    if copies > 1:
        vllm += f"  (one engine a group, or --data-parallel-size {copies})"
        sglang += f"  (one engine a group, or --dp-size {copies})"
    return {"vllm": vllm, "sglang": sglang}


def _numa_nodes(matrix: Matrix, ring: Sequence[int]) -> str:
    nodes = [matrix.affinity[gpu].numa for gpu in ring if gpu in matrix.affinity]
    if len(nodes) < len(ring) or any(node is None or not node.isdigit() for node in nodes):
        return ""
    return " --numa-node " + " ".join(str(node) for node in nodes)
