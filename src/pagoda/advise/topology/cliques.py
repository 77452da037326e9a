"""NVLink cliques: sets in which every pair is joined directly, and what spoils them.

A connected component is not enough: the eight GPUs of a V100 cube mesh hang together, yet
twelve of their pairs have no direct link. A clique is of one class where widths matter:
a pair with a dead link (NV17 beside NV18) slows the whole ring. The hybrid meshes of V100
and P100 boards join NV1 and NV2 by design, so there widths may mix, with a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pagoda.advise.topology.matrix import Matrix, Pair, pair_of

__all__ = ["asymmetric_pairs", "cliques", "lost_gpus", "narrow_pairs", "nvlink_components"]

# Boards whose pairs have at most this many links are direct meshes that mix widths by design.
MESH_WIDTH = 3


def cliques(matrix: Matrix) -> list[list[int]]:
    """Disjoint NVLink cliques of two or more GPUs, the largest of the widest class first."""
    widths = _widths(matrix)
    if not widths or max(widths.values()) <= MESH_WIDTH:
        return sorted(_partition(matrix.gpus, lambda pair: pair in widths))
    found: list[list[int]] = []
    left = list(matrix.gpus)
    for width in sorted(set(widths.values()), reverse=True):
        chosen = _partition(left, lambda pair, width=width: widths.get(pair) == width)  # type: ignore[misc]
        found += chosen
        left = [gpu for gpu in left if not any(gpu in clique for clique in chosen)]
    return sorted(found)


def _widths(matrix: Matrix) -> dict[Pair, int]:
    return {pair: link.width for pair, link in matrix.links.items() if link.kind == "NV"}


def _partition(gpus: Sequence[int], joined: Callable[[Pair], bool]) -> list[list[int]]:
    """Take the largest clique, then the largest of what is left; ties go to lower ids."""
    left = sorted(gpus)
    found: list[list[int]] = []
    while left:
        best = min((_grown(seed, left, joined) for seed in left), key=lambda c: (-len(c), c))
        if len(best) < 2:
            break
        found.append(best)
        left = [gpu for gpu in left if gpu not in best]
    return found


def _grown(seed: int, gpus: Sequence[int], joined: Callable[[Pair], bool]) -> list[int]:
    """Grow a clique from one GPU, adding whoever has most neighbours among the candidates."""
    clique = [seed]
    open_to = [gpu for gpu in gpus if gpu != seed and joined(pair_of(seed, gpu))]
    while open_to:
        shared = {g: [o for o in open_to if o != g and joined(pair_of(g, o))] for g in open_to}
        added = min(open_to, key=lambda gpu: (-len(shared[gpu]), gpu))
        clique.append(added)
        open_to = shared[added]
    return sorted(clique)


def nvlink_components(matrix: Matrix) -> list[list[int]]:
    """GPUs that hang together over NVLink, directly or not; single GPUs are left out."""
    left = set(matrix.gpus)
    found = []
    while left:
        seen: set[int] = set()
        edge = [min(left)]
        while edge:
            gpu = edge.pop()
            if gpu not in seen:
                seen.add(gpu)
                edge += matrix.peers(gpu)
        left -= seen
        found.append(sorted(seen))
    return [component for component in found if len(component) > 1]


def lost_gpus(matrix: Matrix) -> list[int]:
    """GPUs without any NVLink on a host where three or more others form a clique."""
    if not any(len(clique) >= 3 for clique in cliques(matrix)):
        return []
    return [gpu for gpu in matrix.gpus if not matrix.peers(gpu)]


def narrow_pairs(matrix: Matrix) -> list[Pair]:
    """Pairs with fewer links than most NVLink pairs of this host have; none on a mixed mesh."""
    widths = _widths(matrix)
    if not widths or max(widths.values()) <= MESH_WIDTH:
        return []
    counts = Counter(widths.values())
    usual = max(counts, key=lambda width: (counts[width], width))
    return sorted(pair for pair, width in widths.items() if width < usual)


def asymmetric_pairs(matrix: Matrix) -> list[Pair]:
    """Pairs that keep NVLink GPUs from being alike, or whose two directions disagree.

    These are: contradictions, narrow pairs, every pair of a GPU that lost its links, and
    the pairs that a connected component lacks to be a clique.
    """
    found = set(matrix.conflicts) | set(narrow_pairs(matrix))
    lost = lost_gpus(matrix)
    found |= {pair for pair in matrix.pairs() if set(pair) & set(lost)}
    for component in nvlink_components(matrix):
        for k, left in enumerate(component):
            for right in component[k + 1 :]:
                link = matrix.link(left, right)
                if link is not None and link.kind != "NV":
                    found.add((left, right))
    return sorted(found)
