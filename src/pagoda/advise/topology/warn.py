"""What is suspicious about a host's GPUs, in sentences; it refuses nothing by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pagoda.advise.topology.cliques import (
    MESH_WIDTH,
    asymmetric_pairs,
    cliques,
    lost_gpus,
    narrow_pairs,
)
from pagoda.advise.topology.hardware import is_virtual, part_of
from pagoda.advise.topology.matrix import Matrix

__all__ = ["class_names", "group_warnings", "host_warnings"]


def host_warnings(matrix: Matrix) -> list[str]:
    """Warnings about the whole host: damage of the input, faults of links, odd places."""
    return [
        *_damage(matrix),
        *_conflicts(matrix),
        *_lost(matrix),
        *_narrow(matrix),
        *_mesh(matrix),
        *_by_name(matrix),
        *_places(matrix),
    ]


def _damage(matrix: Matrix) -> Iterator[str]:
    if matrix.cut:
        yield "matrix incomplete: " + "; ".join(matrix.damage)
    elif matrix.damage:
        yield "matrix damaged: " + "; ".join(matrix.damage)


def _conflicts(matrix: Matrix) -> Iterator[str]:
    for (left, right), (one, two) in sorted(matrix.conflicts.items()):
        yield (
            f"GPU{left}–GPU{right} is {one.name} in one row and {two.name} in the other: a link "
            "has no direction, so capture the matrix again; no group holds both until then"
        )


def _lost(matrix: Matrix) -> Iterator[str]:
    for gpu in lost_gpus(matrix):
        yield (
            f"GPU{gpu} has no NVLink while the others have: look at "
            f"`nvidia-smi nvlink -s -i {gpu}` and the fabric manager's log, reset or replace it "
            "before using it in a group"
        )


def _narrow(matrix: Matrix) -> Iterator[str]:
    usual = max((link.width for link in matrix.links.values()), default=0)
    for left, right in narrow_pairs(matrix):
        width = matrix.links[(left, right)].width
        yield (
            f"GPU{left}–GPU{right} has NV{width}, not the usual NV{usual}: {usual - width} dead "
            f"link(s)? see `nvidia-smi nvlink -s` of both"
        )


def _mesh(matrix: Matrix) -> Iterator[str]:
    widths = {link.width for link in matrix.links.values() if link.kind == "NV"}
    if len(widths) > 1 and max(widths) <= MESH_WIDTH:
        both = "/".join(f"NV{width}" for width in sorted(widths))
        yield f"{both} are mixed inside cliques, as hybrid meshes are built; pairs take the widest"
    lost = set(lost_gpus(matrix))
    whole = [
        pair
        for pair in asymmetric_pairs(matrix)
        if pair in matrix.links and matrix.links[pair].kind != "NV" and not set(pair) & lost
    ]
    if whole:
        left, right = whole[0]
        yield (
            f"GPUs that hang together over NVLink are no clique: {len(whole)} pairs have no direct "
            f"link, GPU{left}–GPU{right} is {matrix.links[(left, right)].name} for one"
        )


def _by_name(matrix: Matrix) -> Iterator[str]:
    yield from _missing_nvlink(matrix)
    virtual = [gpu for gpu in matrix.gpus if is_virtual(matrix.names.get(gpu))]
    if virtual:
        yield (
            f"GPU{virtual[0]} is a vGPU ({matrix.names[virtual[0]]}): most profiles have no peer "
            "copies, NCCL then goes through host shared memory"
        )
    models = sorted({matrix.names[gpu] for gpu in matrix.gpus if gpu in matrix.names})
    if len(models) > 1:
        yield f"different GPU models in one host: {', '.join(models)}"


def _missing_nvlink(matrix: Matrix) -> Iterator[str]:
    """A board that is wired with NVLink, seen without it or with another width."""
    wired = [
        gpu
        for gpu in matrix.gpus
        if (part := part_of(matrix.names.get(gpu))) is not None and part.board == "sxm"
    ]
    if len(matrix.gpus) < 2 or not wired:
        return
    name = matrix.names[wired[0]]
    if not any(matrix.peers(gpu) for gpu in wired):
        yield (
            f"{name} is wired with NVLink but none is up: fabric manager not running, a VM without "
            "the switches, or confidential mode; see `nvidia-smi nvlink -s`"
        )
        return
    yield from _odd_widths(matrix, wired, name)
    if len(matrix.gpus) > 2 and all(len(clique) == 2 for clique in cliques(matrix)):
        yield f"{name} usually joins all GPUs, here only pairs: is the switch fabric broken?"


def _odd_widths(matrix: Matrix, wired: Sequence[int], name: str) -> Iterator[str]:
    part = part_of(name)
    assert part is not None, "the caller looked the name up"
    seen = {
        link.width
        for pair, link in matrix.links.items()
        if link.kind == "NV" and set(pair) <= set(wired)
    }
    odd = sorted(seen - set(part.pair_widths))
    if odd and not narrow_pairs(matrix):
        usual = " or ".join(f"NV{width}" for width in part.pair_widths)
        found = f"NV{odd[0]} between {name}"
        yield f"{found} is unexplained (nominal {usual}): see `nvidia-smi nvlink -s`"


def _places(matrix: Matrix) -> Iterator[str]:
    near = matrix.affinity
    blank = [g for g in matrix.gpus if (a := near.get(g)) is not None and a.cpus is None and a.numa]
    if blank:
        yield (
            f"no processor of this container is near GPU{', GPU'.join(map(str, blank))} (empty CPU "
            "affinity): host copies cross sockets, widen the cpuset"
        )
    unplaced = [gpu for gpu in matrix.gpus if gpu not in near or near[gpu].place is None]
    if unplaced and len(matrix.gpus) > 1:
        yield f"no NUMA node or processors given for GPU{', GPU'.join(map(str, unplaced))}"


def group_warnings(matrix: Matrix, groups: Sequence[Sequence[int]]) -> list[str]:
    """Warnings about proposed groups of one size: mixed classes, far links, unlike groups."""
    kinds: dict[str, list[list[int]]] = {}
    said: dict[str, list[list[int]]] = {}
    for group in groups:
        names = class_names(matrix, group)
        kinds.setdefault("+".join(names), []).append(list(group))
        for sentence in _about(matrix, group, names):
            said.setdefault(sentence, []).append(list(group))
    found = [f"{_listed(which)} {sentence}" for sentence, which in said.items()]
    if len(kinds) > 1:
        shown = ", ".join(f"{gs[0]} is {kind}" for kind, gs in kinds.items())
        found.append(f"the groups are unlike one another ({shown}): replicas will differ in speed")
    return found


def _listed(groups: Sequence[list[int]]) -> str:
    return ", ".join(str(group) for group in groups)


def class_names(matrix: Matrix, group: Sequence[int]) -> list[str]:
    """Names of the link classes inside a group, sorted."""
    members = sorted(group)
    links = (matrix.link(a, b) for k, a in enumerate(members) for b in members[k + 1 :])
    return sorted({link.name for link in links if link is not None})


def _about(matrix: Matrix, group: Sequence[int], names: Sequence[str]) -> Iterator[str]:
    members = list(group)
    if len(members) & (len(members) - 1):
        yield f"have {len(members)} members: a model's attention heads must be divisible by that"
    if any(name.startswith("NV") for name in names):
        # Larger groups cannot help but span both sockets; a pair usually can.
        if len(members) == 2 and matrix.apart(*members):
            yield "sit on different NUMA nodes: their NVLink is as good, host copies are not"
    elif "SYS" in names:
        yield "are joined by SYS alone: expect all-reduces through host memory"
    elif "NODE" in names or "PHB" in names:
        yield f"go through the processor ({'+'.join(names)}): peers may not copy directly"
    elif len(names) > 1:
        yield f"mix {' and '.join(names)}: one root, but not one switch"
