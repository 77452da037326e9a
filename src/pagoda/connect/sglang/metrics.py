"""Counters in the process's Prometheus registry, which SGLang shows in its /metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from prometheus_client import Counter, Gauge

from pagoda.connect.counts import Counts, counters

UNIT = "segments"
HELD = "pagoda_held_pages"
HELD_MEANING = "Pages of host memory that nobody may use: a stuck drive may touch them."


class Exported:
    """What one rank shows; `ranks` are labels that tell it from others."""

    def __init__(self, ranks: Mapping[str, str]) -> None:
        self._ranks = dict(ranks)
        for name, (labels, _) in counters(UNIT).items():
            if not labels:
                self._counter(name)  # it is there before anything is counted

    def show(self, counts: Counts, *, held: int) -> None:
        """Add what was counted since the last call."""
        for (name, labels), count in counts.take().items():
            self._counter(name, *labels).inc(count)
        _held(tuple(self._ranks)).labels(**self._ranks).set(held)

    def _counter(self, name: str, *values: str) -> Counter:
        labels, meaning = counters(UNIT)[name]
        known = _counter(name, meaning, (*self._ranks, *labels))
        return known.labels(*self._ranks.values(), *values)


# A registry takes each name once, however often a backend is attached.


@cache
def _counter(name: str, meaning: str, labels: tuple[str, ...]) -> Counter:
    return Counter(name, meaning, labels)


@cache
def _held(labels: tuple[str, ...]) -> Gauge:
    return Gauge(HELD, HELD_MEANING, labels, multiprocess_mode="livesum")
