"""The learned hazard of reuse written down as plainly as it is defined: loops over observations
and bins, and a double loop over what keeping a block brings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heat_models import bin_of

from pagoda.core.policy.reuse import BINS, EDGES_S


@dataclass(frozen=True)
class Seen:
    """One observed chain: its kind's place in (turn, size, hint), when it was left, and how
    long until it was continued, if it was."""

    place: tuple[int, int, int]
    since_s: float
    gap_s: float | None = None


Table = dict[tuple[int, int, int], list[float]]  # by place: one figure for each bin


def naive_tally(observed: Sequence[Seen], now_s: float) -> tuple[Table, Table]:
    """Events, and seconds at risk: each chain lives through bins until it is continued, or
    until now, and no longer than until the last bin ends."""
    events: Table = {}
    risk_s: Table = {}
    for seen in observed:
        happened = events.setdefault(seen.place, [0.0] * BINS)
        at_risk = risk_s.setdefault(seen.place, [0.0] * BINS)
        end_s = now_s - seen.since_s if seen.gap_s is None else seen.gap_s
        for number in range(BINS):
            at_risk[number] += max(0.0, min(end_s, EDGES_S[number + 1]) - EDGES_S[number])
        if seen.gap_s is not None:
            happened[bin_of(seen.gap_s)] += 1
    return events, risk_s


def naive_densities(base: Sequence[float], factor: float) -> list[float]:
    """By bin of age: for each time of keeping a block from the start of the bin, the hits to be
    expected by the seconds that it is expected to be kept; the most of these."""
    best: list[float] = []
    for first in range(BINS):
        alive, hits, seconds, most = 1.0, 0.0, 0.0, 0.0
        for number in range(first, BINS):
            hazard = factor * base[number]
            width_s = EDGES_S[number + 1] - EDGES_S[number]
            dies = -math.expm1(-hazard * width_s)
            hits += alive * dies
            seconds += alive * dies / hazard
            alive *= 1.0 - dies
            most = max(most, hits / seconds)
        best.append(most)
    return best


def naive_base(events: Sequence[float], risk_s: Sequence[float]) -> list[float]:
    """The hazard by bin, smoothed with both neighbours at half weight and half an event at the
    mean hazard; behind its peak it never rises."""
    mean = max(sum(events), 1.0) / max(sum(risk_s), 1e-9)
    base: list[float] = []
    for number in range(BINS):
        near = {number - 1: 0.5, number: 1.0, number + 1: 0.5}
        within = {at: weight for at, weight in near.items() if 0 <= at < BINS}
        seen = sum(weight * events[at] for at, weight in within.items()) + 0.5
        base.append(seen / (sum(w * risk_s[at] for at, w in within.items()) + 0.5 / mean))
    peak = base.index(max(base))
    return base[:peak] + [min(base[peak : number + 1]) for number in range(peak, BINS)]


@dataclass
class NaiveFit:
    """A hazard of one base and one factor for each turn, size and hint, fitted by turns."""

    base: list[float]
    factors: tuple[dict[int, float], dict[int, float], dict[int, float]]

    def factor(self, place: tuple[int, int, int]) -> float:
        turns, sizes, hints = self.factors
        return turns.get(place[0], 1.0) * sizes.get(place[1], 1.0) * hints.get(place[2], 1.0)


def naive_fit(observed: Sequence[Seen], now_s: float, *, sweeps: int, prior: float) -> NaiveFit:
    """`sweeps` times: the base under the factors, then each axis of factors under the rest."""
    events, risk_s = naive_tally(observed, now_s)
    fit = NaiveFit([], ({}, {}, {}))
    for _ in range(sweeps):
        fit.base = naive_base(
            [math.fsum(row[number] for row in events.values()) for number in range(BINS)],
            [math.fsum(fit.factor(p) * row[number] for p, row in risk_s.items()) for number in _N],
        )
        due = {p: math.fsum(map(float.__mul__, row, fit.base)) for p, row in risk_s.items()}
        for axis, factor in enumerate(fit.factors):
            fit_axis = {level: factor.get(level, 1.0) for level in {p[axis] for p in due}}
            fit.factors[axis].update(
                {
                    level: old
                    * (_of(axis, level, {p: math.fsum(row) for p, row in events.items()}) + prior)
                    / (
                        _of(axis, level, {p: fit.factor(p) * d for p, d in due.items()})
                        + prior * old
                    )
                    for level, old in fit_axis.items()
                }
            )
    return fit


_N = range(BINS)


def _of(axis: int, level: int, by_place: Mapping[tuple[int, int, int], float]) -> float:
    return math.fsum(figure for place, figure in by_place.items() if place[axis] == level)
