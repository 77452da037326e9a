"""How soon a chain of blocks is used again: a hazard over its age, learned as requests come.

A request's chain is observed from when it came until another request continues it, or until
now: most are never continued, and those are not known to be dead, only not yet used again
(censored). The chance of reuse in the next second, at age a, is modelled as

    hazard(a) = base(a) x turn x fresh x hint

one base over bins of age for all chains, and one factor for each level of what is known of a
request: which turn of its conversation it is, how many new blocks it brought, and what it says
of its session. A hint is one more factor, so how far it is trusted is how far it was right. Both
halves are fitted by turns to the events and the time at risk of the last requests. References:
N. Breslow, discussion of D. R. Cox, "Regression models and life-tables", J. R. Stat. Soc. B
34(2), 1972, for the fit; N. Beckmann, H. Chen and A. Cidon, "LHD: Improving cache hit rate by
maximizing hit density", NSDI 2018, for ranking blocks by hits for the space and time they take;
J. C. Gittins, "Bandit processes and dynamic allocation indices", J. R. Stat. Soc. B 41(2), 1979,
for looking as far ahead as pays best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagoda.core.policy.port import Hint

Floats = NDArray[np.float64]

# All fixed on the first half of one trace (docs/reference/policies.md).
_WINDOW = 8192  # requests that are observed
_REFIT = 50  # requests between two fits
_SWEEPS = 4  # of a fit, each from the base to the factors
_PRIOR = 4.0  # events' worth of belief that a factor is 1
BINS = 30
_FIRST_EDGE_S = 0.5
_EDGE_RATIO = 1.35  # the last bin ends at 50 minutes; older chains count as that old
_LEVELS = 40  # of the product of the factors, which is kept as one of so many powers
_LEVEL_RATIO = 1.35
_LOWEST_FACTOR = 1 / 256
_TURNS, _SIZES = 8, 10
_HINTS = {hint: number for number, hint in enumerate(Hint)}
_SHAPE = (_TURNS, _SIZES, len(_HINTS))

WORTHLESS = 0  # the level of what nothing speaks for
NEUTRAL = round(math.log(1 / _LOWEST_FACTOR) / math.log(_LEVEL_RATIO))
EDGES_S = (0.0, *(_FIRST_EDGE_S * _EDGE_RATIO**number for number in range(BINS)))


@dataclass(frozen=True, slots=True)
class Kind:
    """What a request's hazard depends on: its turn from 1, how many blocks it brought that no
    earlier request had, and what it said of its session."""

    turn: int
    fresh: int
    hint: Hint

    @property
    def cell(self) -> int:
        """Its place in tables of (turn, size, hint)."""
        turn = min(self.turn, _TURNS - 1)
        size = min(self.fresh.bit_length(), _SIZES - 1)
        return (turn * _SIZES + size) * len(_HINTS) + _HINTS[self.hint]


class ReuseModel:
    """Observes chains, and ranks them by hits to be expected for each second of each block."""

    def __init__(self) -> None:
        self.scores = _by_age_alone()
        self._factors = np.ones(_SHAPE)
        self._cells = np.zeros(_WINDOW, dtype=np.int64)
        self._since_s = np.zeros(_WINDOW)
        self._gap_s = np.full(_WINDOW, -1.0)  # until reuse; below 0: not reused yet
        self._observed = 0

    def level(self, kind: Kind) -> int:
        """Where chains of a kind stand: the row of `scores`, from WORTHLESS up."""
        factor = float(self._factors.flat[kind.cell])
        power = round(math.log(factor / _LOWEST_FACTOR) / math.log(_LEVEL_RATIO))
        return max(1, min(_LEVELS - 1, power))

    def observe(self, kind: Kind, at_s: float) -> int:
        """A request has left a chain; returns the number that `reused` takes."""
        number = self._observed
        self._observed += 1
        at = number % _WINDOW
        self._cells[at] = kind.cell
        self._since_s[at] = at_s
        self._gap_s[at] = -1.0
        if self._observed % _REFIT == 0:
            self._fit(at_s)
        return number

    def reused(self, number: int, at_s: float) -> None:
        """Another request continues an observed chain, for the first time."""
        if number >= self._observed - _WINDOW:
            at = number % _WINDOW
            self._gap_s[at] = max(0.0, at_s - self._since_s[at])

    def forgotten(self, number: int) -> bool:
        """Whether an observation is too old to count."""
        return number < self._observed - _WINDOW

    def _fit(self, now_s: float) -> None:
        events, risk_s = self._tally(now_s)
        happened = events.sum(axis=1).reshape(_SHAPE)
        factors = [np.ones(size) for size in _SHAPE]
        base = np.zeros(BINS)
        for _ in range(_SWEEPS):
            base = _base(events.sum(axis=0), _product(factors).reshape(-1) @ risk_s)
            expected = (risk_s @ base).reshape(_SHAPE)
            for axis, factor in enumerate(factors):
                seen = _sums(happened, axis)
                due = _sums(_product(factors) * expected, axis)
                factors[axis] = factor * (seen + _PRIOR) / (due + _PRIOR * factor)
        self._factors = _product(factors)
        self.scores = _densities(base)

    def _tally(self, now_s: float) -> tuple[Floats, Floats]:
        """Events, and seconds at risk, by cell and bin of age."""
        count = min(self._observed, _WINDOW)
        cells, gaps, since_s = self._cells[:count], self._gap_s[:count], self._since_s[:count]
        edges = np.array(EDGES_S)
        now_s = max(now_s, since_s.max())  # requests overlap: the last to end is not the newest
        ends = np.where(gaps >= 0, gaps, now_s - since_s)
        ends = np.minimum(ends, edges[-1])
        bins = np.minimum(np.searchsorted(edges, ends, side="right") - 1, BINS - 1)
        places = cells * BINS + bins
        size = self._factors.size * BINS
        shape = (self._factors.size, BINS)
        ended = np.bincount(places, minlength=size).reshape(shape)
        events = np.bincount(places[gaps >= 0], minlength=size).reshape(shape)
        partly_s = np.bincount(places, weights=ends - edges[bins], minlength=size).reshape(shape)
        passed = ended[:, ::-1].cumsum(axis=1)[:, ::-1] - ended
        risk_s = partly_s + passed * np.diff(edges)
        return np.asarray(events, np.float64), np.asarray(risk_s, np.float64)


def _product(factors: Sequence[Floats]) -> Floats:
    """The factor of each (turn, size, hint)."""
    turns, sizes, hints = factors
    product: Floats = turns[:, np.newaxis, np.newaxis] * sizes[:, np.newaxis] * hints
    return product


def _sums(table: Floats, axis: int) -> Floats:
    """What a table of (turn, size, hint) has for each level of one of them."""
    others = tuple(other for other in range(table.ndim) if other != axis)
    sums: Floats = table.sum(axis=others)
    return sums


def _base(events: Floats, risk_s: Floats) -> Floats:
    """The hazard over the bins of age: smoothed with its neighbours, towards the mean where
    little was seen, and not rising again behind its peak."""
    mean = max(events.sum(), 1.0) / max(risk_s.sum(), 1e-9)
    near = np.array([0.5, 1.0, 0.5])
    smooth_events = np.convolve(events, near, mode="same") + 0.5
    smooth_risk_s = np.convolve(risk_s, near, mode="same") + 0.5 / mean
    base = smooth_events / smooth_risk_s
    peak = int(base.argmax())
    base[peak:] = np.minimum.accumulate(base[peak:])
    return np.asarray(base, dtype=np.float64)


def _densities(base: Floats) -> list[list[float]]:
    """By level and bin of age: the most hits for each second of a block that any time of
    keeping it brings, counted from the start of the bin."""
    factors = _LOWEST_FACTOR * _LEVEL_RATIO ** np.arange(_LEVELS)[:, np.newaxis]
    hazards = factors * base
    dies = -np.expm1(-hazards * np.diff(np.array(EDGES_S)))
    densities = np.empty((_LEVELS, BINS))
    for first in range(BINS):
        alive = np.cumprod(1.0 - dies[:, first:], axis=1)
        before = np.hstack([np.ones((_LEVELS, 1)), alive[:, :-1]])
        hits = np.cumsum(before * dies[:, first:], axis=1)
        seconds = np.cumsum(before * dies[:, first:] / hazards[:, first:], axis=1)
        densities[:, first] = (hits / seconds).max(axis=1)
    densities[WORTHLESS] = 0.0
    rows: list[list[float]] = densities.tolist()
    return rows


def _by_age_alone() -> list[list[float]]:
    """Before anything is learned: the younger the better."""
    ages = [1.0 / (1.0 + edge_s) for edge_s in EDGES_S[:BINS]]
    return [[0.0] * BINS] + [ages] * (_LEVELS - 1)
