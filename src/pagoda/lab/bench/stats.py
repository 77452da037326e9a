"""Order statistics of a few measured values. Pure; no clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` % of the sorted values lie, linear between neighbours.

    The definition of numpy's default ("linear", type 7 of Hyndman and Fan, 1996).
    `ordered` is ascending and not empty; 0 <= percent <= 100.
    """
    assert ordered, "a percentile of nothing"
    assert 0 <= percent <= 100, f"no such percentile: {percent}"
    rank = (len(ordered) - 1) * percent / 100
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """The shape of many latencies, in the unit of the values."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Percentiles | None:
        """Percentiles of `values`, None when there are none."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(
            count=len(ordered),
            mean=math.fsum(ordered) / len(ordered),
            p50=percentile(ordered, 50),
            p90=percentile(ordered, 90),
            p99=percentile(ordered, 99),
            max=ordered[-1],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A few repeated measurements: their median with the lowest and the highest."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of one measurement or more."""
        ordered = sorted(values)
        assert ordered, "a spread of nothing"
        return cls(
            median=percentile(ordered, 50), low=ordered[0], high=ordered[-1], runs=len(ordered)
        )


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Ratios of runs that alternated: each pair is divided before the median is taken, so a
    machine that slows down half-way moves both sides of a pair."""
    assert len(numerators) == len(denominators), "pairs need two equal sides"
    return Spread.of(n / d for n, d in zip(numerators, denominators, strict=True))
