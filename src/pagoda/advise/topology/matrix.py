"""The parsed matrix: which GPUs there are, what joins each pair, and what is near them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pagoda.advise.topology.links import Link

__all__ = ["Affinity", "Matrix", "Pair", "pair_of"]

Pair = tuple[int, int]


def pair_of(left: int, right: int) -> Pair:
    """The unordered pair of two GPU ids, lower id first."""
    return (left, right) if left < right else (right, left)


@dataclass(frozen=True, slots=True)
class Affinity:
    """Processors and NUMA nodes near a GPU, as printed; None where the cell is empty or N/A."""

    cpus: str | None = None
    numa: str | None = None

    @property
    def place(self) -> str | None:
        """What tells sockets apart: the NUMA cell, or the processors where there is none."""
        if self.numa is not None:
            return self.numa
        return None if self.cpus is None else f"cpus {self.cpus}"


@dataclass(frozen=True)
class Matrix:
    """Links between the GPUs of one host.

    `links` has one entry for each pair whose link was read in at least one direction and
    not contradicted by the other; `conflicts` holds the pairs whose two directions differ.
    `nics[gpu][nic]` is the link from a GPU to a network adapter. `damage` names what was
    unreadable; `cut` tells whether the input ends early.
    """

    gpus: tuple[int, ...]
    links: Mapping[Pair, Link]
    conflicts: Mapping[Pair, tuple[Link, Link]] = field(default_factory=dict)
    affinity: Mapping[int, Affinity] = field(default_factory=dict)
    nics: Mapping[int, Mapping[str, Link]] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    damage: tuple[str, ...] = ()
    cut: bool = False

    def link(self, left: int, right: int) -> Link | None:
        """The link of a pair, None when it is unknown or contradicted."""
        return self.links.get(pair_of(left, right))

    def pairs(self) -> list[Pair]:
        """Every unordered pair of GPUs, in order."""
        ids = sorted(self.gpus)
        return [(left, right) for k, left in enumerate(ids) for right in ids[k + 1 :]]

    def unknown(self) -> list[Pair]:
        """Pairs that no row tells anything about."""
        return [p for p in self.pairs() if p not in self.links and p not in self.conflicts]

    def peers(self, gpu: int) -> list[int]:
        """GPUs that a GPU reaches over NVLink."""
        return [
            other
            for other in self.gpus
            if other != gpu and (link := self.link(gpu, other)) is not None and link.kind == "NV"
        ]

    def numa(self) -> dict[str, list[int]]:
        """GPUs by NUMA cell as printed (`0`, `0-1`, `0,3-9`); GPUs without one are left out."""
        found: dict[str, list[int]] = {}
        for gpu in self.gpus:
            near = self.affinity.get(gpu)
            if near is not None and near.numa is not None:
                found.setdefault(near.numa, []).append(gpu)
        return found

    def apart(self, left: int, right: int) -> bool | None:
        """Tell whether two GPUs hang off different sockets; None when it cannot be said.

        An unread NUMA cell is bridged by a third GPU: what is SYS away from a GPU of
        node 0 is not on node 0.
        """
        link = self.link(left, right)
        if link is not None and link.kind in ("PIX", "PXB", "PHB"):
            return False
        together = self._together(left, right)
        if together is not None:
            return not together
        if self._across(left, right) or self._across(right, left):
            return True
        return None

    def _together(self, left: int, right: int) -> bool | None:
        """Compare NUMA cells, or processors where a cell is empty; None without either."""
        here, there = (self.affinity.get(gpu, Affinity()) for gpu in (left, right))
        if here.numa is not None and there.numa is not None:
            return here.numa == there.numa
        if here.cpus is not None and there.cpus is not None:
            return here.cpus == there.cpus
        return None

    def _across(self, known: int, other: int) -> bool:
        """Tell whether `other` is SYS away from a GPU that is on the node of `known`."""
        mates = [g for g in self.gpus if g != other and (g == known or self._together(known, g))]
        links = (self.link(gpu, other) for gpu in mates if self._located(known))
        return any(link is not None and link.kind == "SYS" for link in links)

    def _located(self, gpu: int) -> bool:
        near = self.affinity.get(gpu)
        return near is not None and near.place is not None
