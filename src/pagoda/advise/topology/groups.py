"""Homogeneous tensor-parallel groups: which GPUs may form one, and the best partition.

Every member of a tensor-parallel group waits for the slowest pair, so a group is only
proposed when its pairs are alike: all NVLink, or all PCIe without leaving a NUMA node, or
all SYS among GPUs of one processor affinity. Among the partitions that are allowed, the one
with most groups wins, then the one that crosses fewest sockets, then the fastest links.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pagoda.advise.topology.cliques import lost_gpus, narrow_pairs
from pagoda.advise.topology.hardware import is_virtual, same_model
from pagoda.advise.topology.links import Fabric, Link, bandwidth_gbs
from pagoda.advise.topology.matrix import Matrix, Pair, pair_of
from pagoda.advise.topology.ring import order, ring_cost

__all__ = ["Break", "Grouper", "Proposal"]

# Up to here every subset and partition is tried (at most 945 pairings); above, groups grow.
EXACT_GPUS = 10
RING_GPUS = 4

_Group = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Break:
    """Why GPUs do not make a group: the pair that breaks it (None: no pair) and a sentence."""

    pair: Pair | None
    why: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """Groups of one size; `refusal` says why there are none, or what `forced` ones suffer from."""

    size: int
    groups: tuple[tuple[int, ...], ...]
    refusal: Break | None = None


class Grouper:
    """Answers which groups of a size a matrix allows; holds what is computed once a matrix."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._narrow = set(narrow_pairs(matrix))
        self._lost = set(lost_gpus(matrix))
        self._linked = {gpu for gpu in matrix.gpus if matrix.peers(gpu)}

    def propose(self, size: int, *, force: bool = False) -> Proposal:
        """The best disjoint groups of `size` (≥ 2) GPUs; `force` also takes unlike pairs."""
        gpus = tuple(sorted(self._matrix.gpus))
        if size > len(gpus):
            return Proposal(size, (), Break(None, f"there are only {len(gpus)} GPUs"))
        allowed = self._partition(gpus, size, force=False)
        if allowed:
            return Proposal(size, allowed)
        refusal = self._least_bad(gpus, size)
        return Proposal(size, self._partition(gpus, size, force=True) if force else (), refusal)

    def fault(self, group: Sequence[int]) -> Break | None:
        """The first reason why these GPUs are no homogeneous group; None when they are one."""
        pairs = [pair_of(a, b) for a, b in itertools.combinations(sorted(group), 2)]
        return (
            self._unknown(pairs)
            or self._unlike_models(group, pairs)
            or self._lost_member(group, pairs)
            or self._mixed(pairs)
            or self._narrow_inside(pairs)
            or self._unused_nvlink(group, pairs)
            or self._far(pairs)
        )

    def _unknown(self, pairs: Sequence[Pair]) -> Break | None:
        for pair in pairs:
            if pair in self._matrix.conflicts:
                one, two = self._matrix.conflicts[pair]
                return Break(
                    pair, f"{_named(pair)} is {one.name} in one row and {two.name} in the other"
                )
            if pair not in self._matrix.links:
                return Break(pair, f"the link of {_named(pair)} is not in the input")
        return None

    def _unlike_models(self, group: Sequence[int], pairs: Sequence[Pair]) -> Break | None:
        names = self._matrix.names
        for left, right in pairs:
            if not same_model(names.get(left), names.get(right)):
                return Break(
                    (left, right), f"GPU{left} is {names[left]}, GPU{right} is {names[right]}"
                )
        virtual = [gpu for gpu in group if is_virtual(names.get(gpu))]
        if virtual:
            return Break(
                None, f"GPU{virtual[0]} is a vGPU ({names[virtual[0]]}): no copies between peers"
            )
        return None

    def _lost_member(self, group: Sequence[int], pairs: Sequence[Pair]) -> Break | None:
        for gpu in group:
            if gpu in self._lost:
                pair = next(pair for pair in pairs if gpu in pair)
                return Break(pair, f"GPU{gpu} has no NVLink while the others have: repair it first")
        return None

    def _mixed(self, pairs: Sequence[Pair]) -> Break | None:
        """Unlike fabrics: the pair on the rarer, slower one is named."""
        by_fabric: dict[Fabric, list[Pair]] = {}
        for pair in pairs:
            by_fabric.setdefault(self._matrix.links[pair].fabric, []).append(pair)
        if len(by_fabric) < 2:
            return None
        slowest = max(
            pairs, key=lambda pair: (_cost(self._matrix.links[pair]), tuple(-g for g in pair))
        )
        fast = min((self._matrix.links[pair] for pair in pairs), key=_cost)
        link = self._matrix.links[slowest]
        return Break(slowest, f"{_named(slowest)} is {link.name} while other pairs are {fast.name}")

    def _narrow_inside(self, pairs: Sequence[Pair]) -> Break | None:
        widths = {self._matrix.links[pair].width for pair in pairs}
        for pair in pairs:
            if pair in self._narrow and len(widths) > 1:
                mine = self._matrix.links[pair].name
                return Break(pair, f"{_named(pair)} has only {mine}, others have NV{max(widths)}")
        return None

    def _unused_nvlink(self, group: Sequence[int], pairs: Sequence[Pair]) -> Break | None:
        """A PCIe group of GPUs whose NVLinks lead elsewhere is the wrong pairing."""
        first = self._matrix.links[pairs[0]]
        bridged = [gpu for gpu in group if gpu in self._linked]
        if first.fabric is Fabric.NVLINK or not bridged:
            return None
        peer = self._matrix.peers(bridged[0])[0]
        return Break(
            pairs[0],
            f"{_named(pairs[0])} is {first.name}, but GPU{bridged[0]} has NVLink to GPU{peer}",
        )

    def _far(self, pairs: Sequence[Pair]) -> Break | None:
        for pair in pairs:
            if self._matrix.links[pair].kind == "SYS" and self._matrix.apart(*pair) is not False:
                return Break(pair, f"{_named(pair)} is SYS: it crosses sockets, or may")
        return None

    def _least_bad(self, gpus: Sequence[int], size: int) -> Break:
        """The reason of the group that came nearest to being allowed."""
        tried = (
            (list(gpus[:size]),) if len(gpus) > EXACT_GPUS else itertools.combinations(gpus, size)
        )
        best = min(tried, key=lambda group: (self._straddles(group), self._link_cost(group)))
        found = self.fault(best)
        assert found is not None, "a group that is allowed would have been proposed"
        return found

    def _partition(
        self, gpus: tuple[int, ...], size: int, *, force: bool
    ) -> tuple[tuple[int, ...], ...]:
        if len(gpus) > EXACT_GPUS:
            return tuple(self._grown(list(gpus), size, force=force))
        allowed = {
            group: (self._straddles(group), self._link_cost(group))
            for group in itertools.combinations(gpus, size)
            if (self._known(group) if force else self.fault(group) is None)
        }
        best = min(
            _partitions(gpus, size, tuple(allowed)), key=lambda p: _rank(p, allowed), default=()
        )
        return tuple(sorted(best))

    def _grown(self, left: list[int], size: int, *, force: bool) -> Iterator[tuple[int, ...]]:
        """Grow groups one GPU at a time, always the one that costs least."""
        while len(left) >= size:
            group = self._grow(left[0], left[1:], size, force=force)
            if len(group) == size:
                yield tuple(sorted(group))
                left = [gpu for gpu in left if gpu not in group]
            else:
                left = left[1:]

    def _grow(self, seed: int, others: Sequence[int], size: int, *, force: bool) -> list[int]:
        group = [seed]
        while len(group) < size:
            fits = [
                gpu
                for gpu in others
                if gpu not in group
                and (self._known([*group, gpu]) if force else self.fault([*group, gpu]) is None)
            ]
            if not fits:
                break
            group.append(min(fits, key=lambda gpu: self._added_cost(group, gpu)))
        return group

    def _added_cost(self, group: Sequence[int], gpu: int) -> tuple[int, int, int]:
        apart = sum(1 for member in group if self._matrix.apart(member, gpu) is not False)
        return apart, sum(self._pair_cost(pair_of(member, gpu)) for member in group), gpu

    def _known(self, group: Sequence[int]) -> bool:
        pairs = itertools.combinations(sorted(group), 2)
        return all(pair in self._matrix.links or pair in self._matrix.conflicts for pair in pairs)

    def _straddles(self, group: Sequence[int]) -> int:
        """Twice the pairs known to sit on different sockets, once those that may."""
        weight = {True: 2, None: 1, False: 0}
        pairs = itertools.combinations(sorted(group), 2)
        return sum(weight[self._matrix.apart(*pair)] for pair in pairs)

    def _link_cost(self, group: Sequence[int]) -> int:
        """Cost of the best ring; of all pairs where there are too many rings to try each."""
        if len(group) <= RING_GPUS:
            return ring_cost(self._matrix, order(self._matrix, group))[1]
        return sum(self._pair_cost(pair) for pair in itertools.combinations(sorted(group), 2))

    def _pair_cost(self, pair: Pair) -> int:
        known = self._matrix.links.get(pair)
        if known is not None:
            return _cost(known)
        return max(
            (_cost(link) for link in self._matrix.conflicts.get(pair, ())), default=1_000_000
        )


def _cost(link: Link) -> int:
    """Nanoseconds for a megabyte: whole numbers, so that equal partitions compare equal."""
    return round(1_000_000 / bandwidth_gbs(link))


def _named(pair: Pair) -> str:
    return f"GPU{pair[0]}–GPU{pair[1]}"


def _rank(
    partition: Sequence[_Group], costs: dict[_Group, tuple[int, int]]
) -> tuple[int, int, int, list[_Group]]:
    straddles = sum(costs[group][0] for group in partition)
    links = sum(costs[group][1] for group in partition)
    return -len(partition), straddles, links, sorted(partition)


def _partitions(
    gpus: Sequence[int], size: int, allowed: Sequence[_Group]
) -> Iterator[tuple[_Group, ...]]:
    """Every set of disjoint allowed groups that leaves as few GPUs over as its branch can."""
    if len(gpus) < size:
        yield ()
        return
    first, rest = gpus[0], gpus[1:]
    for group in allowed:
        if group[0] == first and set(group) <= set(gpus):
            left = [gpu for gpu in rest if gpu not in group]
            for others in _partitions(left, size, allowed):
                yield (group, *others)
    yield from _partitions(rest, size, allowed)
