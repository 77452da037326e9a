"""How much slower a bad group is, as a formula with its assumption shown.

An all-reduce of S bytes over p ranks takes 2 (p − 1) / p × S / B, where B is what the
slowest member can move to the others. Only the share of a step that is communication
grows with 1/B. The share is an assumption, and is printed with the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.advise.topology.hardware import part_of
from pagoda.advise.topology.links import NVLINK_GBS, bandwidth_gbs
from pagoda.advise.topology.matrix import Matrix
from pagoda.advise.topology.ring import order, ring_hops

__all__ = ["COMMUNICATION_SHARE", "Slowdown", "group_gbs", "slowdown"]

# Decode steps of a dense model at tensor-parallel 4 to 8 over NVLink spend about a tenth
# to a quarter of their time in all-reduces; a fifth is assumed.
COMMUNICATION_SHARE = 0.2
_LINKS_LIMIT = 18


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A step's time in the bad group over that in the good one, and how it was computed."""

    factor: float
    good_gbs: float
    bad_gbs: float

    @property
    def formula(self) -> str:
        """The formula with this group's numbers in it."""
        share = COMMUNICATION_SHARE
        return (
            f"(1 − c) + c × B_good / B_bad = {1 - share:.2f} + {share:.2f} × "
            f"{self.good_gbs:.0f} / {self.bad_gbs:.0f} = {self.factor:.2f}, "
            f"assuming c = {share:.0%} of a step in all-reduces and nominal bandwidths"
        )


def group_gbs(matrix: Matrix, group: Sequence[int]) -> float:
    """What the slowest member of a group can move to the others, GB/s and one direction.

    On an NVLink clique NCCL runs a ring on each set of links, so a member has all its
    links to the group; elsewhere the ring is as fast as its slowest hop.
    """
    pairs = list(itertools.combinations(sorted(group), 2))
    links = [matrix.link(*pair) for pair in pairs]
    if any(link is None for link in links) or not pairs:
        return 0.0
    gbs = _link_gbs(matrix, group)
    if all(link is not None and link.kind == "NV" for link in links):
        return min(_member_links(matrix, gpu, group) for gpu in group) * gbs
    hops = [matrix.link(*hop) for hop in ring_hops(order(matrix, group))]
    return min(bandwidth_gbs(link, gbs) for link in hops if link is not None)


def _member_links(matrix: Matrix, gpu: int, group: Sequence[int]) -> int:
    """Links from one member to the others; behind a switch every pair shows all of them."""
    widths = {o: link.width for o in matrix.peers(gpu) if (link := matrix.link(gpu, o)) is not None}
    inside = [widths[other] for other in group if other != gpu]
    # No GPU has more than 18 links: where the pairs add up to more, a switch shares them.
    switched = sum(widths.values()) > _LINKS_LIMIT
    return max(inside) if switched else sum(inside)


def _link_gbs(matrix: Matrix, group: Sequence[int]) -> float:
    parts = [part_of(matrix.names.get(gpu)) for gpu in group]
    known = [part.link_gbs for part in parts if part is not None and part.links]
    return min(known, default=NVLINK_GBS)


def slowdown(matrix: Matrix, good: Sequence[int], bad: Sequence[int]) -> Slowdown | None:
    """Compare two groups; None when a bandwidth is unknown or the bad group is no slower."""
    good_gbs, bad_gbs = group_gbs(matrix, good), group_gbs(matrix, bad)
    if bad_gbs <= 0 or good_gbs <= bad_gbs:
        return None
    factor = (1 - COMMUNICATION_SHARE) + COMMUNICATION_SHARE * good_gbs / bad_gbs
    return Slowdown(factor, good_gbs, bad_gbs)
