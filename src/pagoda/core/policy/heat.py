"""Pagoda's own policy: hit density, as long as it beats plain LRU here.

Two orders are kept over the same blocks: hit density (core.policy.density) and least recently
used. The leader decides who is dropped. What the other one would hit is counted in a shadow of the
tier, which has keys and no bytes. LRU leads until hit density is ahead by a margin, in hits that
decay over requests, and again when it falls behind: whatever traffic comes, the tier is never far
below LRU. Reference for choosing among policies by what their shadows hit: I. Ari et al., "ACME:
Adaptive caching using multiple experts", WDAS 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.identity import ROOT, Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.density import DensityOrder
from pagoda.core.policy.ledger import Ledger
from pagoda.core.policy.port import Ending, Policy, Request
from pagoda.core.policy.reuse import WORTHLESS
from pagoda.core.policy.sessions import Sessions, Visit, whole_blocks
from pagoda.core.policy.shadow import DensityShadow, LruShadow
from pagoda.core.policy.uses import RankedUses, Use
from pagoda.core.recency import make_recency

_HALF_LIFE = 1000  # requests
# Of the blocks asked for. LRU is the one to beat: what is not clearly better is not risked.
_LEAD = 0.01  # by which hit density must be ahead to lead
_LAG = 0.002  # by which it must be behind to lose the lead
_DECAY = 0.5 ** (1 / _HALF_LIFE)


@dataclass(slots=True)
class _Open:
    """A request that has begun: as the history sees it, and what it uses here and, when there is
    one, in the shadow."""

    visit: Visit
    here: Use
    shadow: Use | None = None


class Heat(Policy):
    """Hit density guarded by LRU; see `core.policy.port.Policy` for the contract."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions = Sessions()
        # The tier's blocks: in order when hit density leads, and until there is a shadow.
        self._blocks: DensityOrder | Ledger = DensityOrder(
            RankedUses(self._sessions.model), self._sessions.shared
        )
        self._recency = make_recency(slots)
        self._lru = LruShadow(slots)
        self._shadow: DensityShadow | None = None  # of hit density, while LRU leads
        self._open: dict[Request, _Open] = {}
        self._race = Race()

    @property
    def leader(self) -> str:
        """Which order decides now."""
        return "density" if self._race.density_leads else "lru"

    def begin(self, request: Request) -> None:
        self._judge(request)
        visit = self._sessions.begin(request)
        level = self._sessions.model.level(visit.kind)
        opened = _Open(visit, self._blocks.begin(request.keys, level, request.at_s))
        if self._shadow is not None:
            opened.shadow = self._shadow.order.begin(request.keys, level, request.at_s)
        self._open[request] = opened

    def end(self, request: Request, ending: Ending) -> None:
        opened = self._open.pop(request)
        kind = self._sessions.end(opened.visit, request, ending)
        level = WORTHLESS if kind is None else self._sessions.model.level(kind)
        partial = whole_blocks(request.keys, ending.keys) == len(request.keys) - 1
        beside = request.keys[-1] if partial else None
        self._lru.fill(ending.keys, beside)
        self._blocks.end(opened.here, level, beside=beside)
        if self._shadow is not None and opened.shadow is not None:
            above = request.keys[-2] if len(request.keys) > 1 else ROOT
            self._shadow.fill(ending.keys, None if beside is None else (beside, above))
            self._shadow.order.end(opened.shadow, level, beside=beside)

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], free: int) -> Sequence[int]:
        if self._race.density_leads:
            return self._order().admits(keys, parents, free)
        return range(len(keys))

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        self._blocks.insert(slots, keys, parents)
        self._recency.touch(slots)

    def touch(self, slots: Sequence[int]) -> None:
        self._blocks.touch(slots)
        self._recency.touch(slots)

    def remove(self, slots: Sequence[int]) -> None:
        self._blocks.remove(slots)
        self._recency.remove(slots)

    def victims(self, count: int, leases: Leases) -> list[int]:
        if self._race.density_leads:
            return self._order().victims(count, leases)
        return self._recency.oldest(count, leases)

    def tracked(self) -> set[int]:
        tracked = self._blocks.tracked()
        assert tracked == set(self._recency.slots()), "heat: its two orders are out of step"
        return tracked

    def _order(self) -> DensityOrder:
        assert isinstance(self._blocks, DensityOrder), "heat: hit density leads without an order"
        return self._blocks

    def _judge(self, request: Request) -> None:
        """Count what each order hits of a request, and let the better one lead."""
        blocks = self._blocks if self._shadow is None else self._shadow.order
        density = len(blocks.prefix(request.keys))
        self._race.run(density, self._lru.hits(request.keys), of=len(request.keys))
        if self._race.density_leads and isinstance(self._blocks, Ledger):
            self._blocks, self._shadow = self._blocks.ordered(), None
        elif not self._race.density_leads and isinstance(self._blocks, DensityOrder):
            self._shadow = DensityShadow(self._slots, self._blocks)
            self._blocks, twins = Ledger.of(self._blocks)
            for opened in self._open.values():
                opened.here, opened.shadow = twins[opened.here], opened.here


class Race:
    """Hit density against LRU, and which of them leads."""

    def __init__(self) -> None:
        self.density_leads = False
        self._density_hits = self._lru_hits = self._all = 0.0

    def run(self, density: int, lru: int, *, of: int) -> None:
        """One more request: what each hit of so many blocks."""
        self._density_hits = self._density_hits * _DECAY + density
        self._lru_hits = self._lru_hits * _DECAY + lru
        self._all = self._all * _DECAY + of
        ahead = self._density_hits - self._lru_hits
        if ahead > _LEAD * self._all:
            self.density_leads = True
        elif ahead < -_LAG * self._all:
            self.density_leads = False
