"""Rank order: the cycle through a group whose slowest hop is fastest.

Neighbours in the ring exchange all the traffic of an all-reduce, so the order keeps
cliques together and crosses a PCIe bridge or a socket as seldom as it can. NCCL searches
its own rings inside a node; the order decides where it has no choice (pipeline stages,
rails of a multi-node job) and which processor each rank is bound to.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from pagoda.advise.topology.links import bandwidth_gbs
from pagoda.advise.topology.matrix import Matrix

__all__ = ["order", "ring_cost", "ring_hops"]

# 7! orders with the first GPU fixed; longer rings are built hop by hop.
_EXACT_RANKS = 8
_UNKNOWN_COST = 1_000_000


def order(matrix: Matrix, group: Sequence[int]) -> tuple[int, ...]:
    """Members in ring order, starting at the lowest id; ties keep the order of ids."""
    first, *rest = sorted(group)
    if len(rest) < 2:
        return (first, *rest)
    costs = _hop_costs(matrix, group)
    if len(set(costs.values())) == 1:
        return (first, *rest)
    if len(group) > _EXACT_RANKS:
        return _nearest(costs, first, rest)
    # A ring read backwards is the same ring, so one direction of each is tried.
    rings = ((first, *r) for r in itertools.permutations(rest) if r[0] < r[-1])
    return min(rings, key=lambda ring: _ring_cost(costs, ring))


def ring_hops(ring: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive members of a ring, the last one joined to the first."""
    if len(ring) < 3:
        return [(ring[0], ring[1])] if len(ring) == 2 else []
    return list(zip(ring, [*ring[1:], ring[0]], strict=True))


def ring_cost(matrix: Matrix, ring: Sequence[int]) -> tuple[int, int, int]:
    """Cost of the slowest hop, of all hops, and how many hops may cross a socket."""
    return _ring_cost(_hop_costs(matrix, ring), ring)


_Costs = Mapping[tuple[int, int], tuple[int, int]]


def _hop_costs(matrix: Matrix, group: Sequence[int]) -> _Costs:
    """Cost of each hop in both directions: time, and 1 where it may cross a socket."""
    found = {}
    for left, right in itertools.combinations(sorted(group), 2):
        link = matrix.link(left, right)
        # Whole nanoseconds a megabyte: sums of floats would make equal rings unequal.
        cost = _UNKNOWN_COST if link is None else round(1_000_000 / bandwidth_gbs(link))
        found[(left, right)] = cost, 0 if matrix.apart(left, right) is False else 1
        found[(right, left)] = found[(left, right)]
    return found


def _ring_cost(costs: _Costs, ring: Sequence[int]) -> tuple[int, int, int]:
    hops = [costs[hop] for hop in ring_hops(ring)]
    return max(h[0] for h in hops), sum(h[0] for h in hops), sum(h[1] for h in hops)


def _nearest(costs: _Costs, first: int, rest: Sequence[int]) -> tuple[int, ...]:
    ring, left = [first], list(rest)
    while left:
        ring.append(min(left, key=lambda gpu: (*costs[(ring[-1], gpu)], gpu)))
        left.remove(ring[-1])
    return tuple(ring)
