"""Requests on their way through a store, as its policies hear of them.

Each rank is told that a request begins, and that it is over: once none of its blocks waits for the
rank any more, so that policies know whose the last ones are. Until then the rank leases what it
has of the request's chain: no block goes while those behind it are still to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.policy import Ending, Request
from pagoda.store.queue import Source, WriteQueue
from pagoda.store.rank import Rank


@dataclass(slots=True, eq=False)
class _Visit:
    """What a request holds in each rank, fastest first, in the order in which it came to hold it:
    slots become free in that order, which a set would leave to chance. Once it is over, `ending`
    says how, and the ranks before `rank` have been told; blocks behind `unseen` of its chain wait
    no more."""

    held: list[dict[Source, None]]
    ending: Ending | None = None
    until_s: float = 0.0  # when the ranks are told anyway
    rank: int = 0
    unseen: int = 0


class Visits:
    """The requests that began. `queues` are what waits for each rank. Owner's thread."""

    def __init__(
        self, ranks: Sequence[Rank], queues: Sequence[WriteQueue], *, wait_s: float
    ) -> None:
        self._ranks = ranks
        self._queues = queues
        self._wait_s = wait_s
        self._open: dict[Request, _Visit] = {}
        self._leaving: dict[Request, _Visit] = {}

    @property
    def count(self) -> int:
        """Requests of whose end some rank was not told yet."""
        return len(self._open)

    @property
    def leaving(self) -> bool:
        """Whether a request is over of which a rank was not told."""
        return bool(self._leaving)

    def begin(self, request: Request) -> None:
        """A request comes; its look-ups follow."""
        assert request not in self._open, "a request begins twice"
        for rank in self._ranks:
            for level in rank.levels:
                level.residency.begin(request)
        self._open[request] = _Visit(
            [dict.fromkeys(rank.lease_prefix(request.keys)) for rank in self._ranks]
        )

    def keep(self, request: Request | None, position: int, source: Source) -> None:
        """A block of a request lies in the rank at a position."""
        visit = None if request is None else self._open.get(request)
        if visit is not None and position >= visit.rank and source not in visit.held[position]:
            source.level.state.lease([source.slot])
            visit.held[position][source] = None

    def end(self, request: Request, ending: Ending, now_s: float) -> None:
        """A request is over; ranks are told as soon as its blocks have arrived."""
        visit = self._open[request]
        assert visit.ending is None, "a request ends twice"
        visit.ending = ending
        visit.until_s = now_s + self._wait_s
        visit.unseen = len(ending.keys)
        self._leaving[request] = visit

    def settle(self, now_s: float) -> None:
        """Tell ranks of the ends whose time has come."""
        for request, visit in list(self._leaving.items()):
            while visit.rank < len(self._ranks) and not self._awaits(visit, now_s):
                self._tell(request, visit)
            if visit.rank == len(self._ranks):
                del self._leaving[request], self._open[request]

    def check_invariants(self) -> None:
        """Every level knows of the requests that are not over for it, and of no others."""
        for position, rank in enumerate(self._ranks):
            expected = sum(visit.rank <= position for visit in self._open.values())
            for level in rank.levels:
                found = level.residency.open_requests
                assert found == expected, f"{level.name}: {found} requests, {expected} began"

    def _awaits(self, visit: _Visit, now_s: float) -> bool:
        """Whether a block of its chain still waits for a rank. What was added last arrives last,
        so the chain is looked through once."""
        assert visit.ending is not None, "only what is over leaves"
        keys, queue = visit.ending.keys, self._queues[visit.rank]
        while visit.unseen and keys[visit.unseen - 1] not in queue:
            visit.unseen -= 1
        return visit.unseen > 0 and now_s < visit.until_s

    def _tell(self, request: Request, visit: _Visit) -> None:
        assert visit.ending is not None, "only what is over leaves"
        for source in visit.held[visit.rank]:
            source.level.state.release([source.slot])
        visit.held[visit.rank] = {}
        for level in self._ranks[visit.rank].levels:
            level.residency.end(request, visit.ending)
        visit.rank += 1
        visit.unseen = len(visit.ending.keys)
