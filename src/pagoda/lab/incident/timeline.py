"""What the users of a load felt, over time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from pagoda.lab.bench.stats import Percentiles
from pagoda.lab.incident.generator import Order

if TYPE_CHECKING:
    from pagoda.lab.incident.service import Path

IN_TIME_S = 0.050
SLICE_S = 0.25


class Timeline:
    """Instants at which requests were meant to be sent, and at which they were answered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asked_ns: list[int] = []
        self._answers: list[tuple[int, int]] = []  # (meant at, answered at)
        self._counts: list[tuple[int, int, int, int]] = []  # (at, wrong, refused, failed)
        self._before = (path.wrong, path.refused, path.failed)
        self._next_ns = 0

    def asked(self, requests: Sequence[tuple[int, int]]) -> None:
        """These requests were taken up."""
        self._asked_ns += [meant_ns for meant_ns, _ in requests]

    def answered(self, meant_ns: Sequence[int]) -> None:
        """These were answered, now."""
        now_ns = time.monotonic_ns()
        self._answers += [(meant, now_ns) for meant in meant_ns]
        if now_ns >= self._next_ns:
            self._count(now_ns)
            self._next_ns = now_ns + int(SLICE_S * 1e9)

    def report(self, order: Order, sent: dict[str, Any]) -> dict[str, Any]:
        """Totals and slices. A request that was never answered counts as not in time."""
        self._count(time.monotonic_ns())
        waits = [(answered - meant) / 1e9 for meant, answered in self._answers]
        shape = Percentiles.of(waits)
        asked = max(sent.get("requests", 0), len(self._asked_ns))
        in_time = sum(wait <= IN_TIME_S for wait in waits)
        _, wrong, refused, failed = self._counts[-1]
        return {
            "loop": "open" if order.rate_per_s else "closed",
            "rate_per_s": order.rate_per_s,
            "outstanding": order.outstanding,
            "seconds": order.seconds,
            "asked": asked,
            "answered": len(waits),
            "failed": failed,
            "in_time": in_time,
            "in_time_share": in_time / asked if asked else 0.0,
            "answered_per_s": len(waits) / order.seconds,
            "in_time_per_s": in_time / order.seconds,
            "wait_s": asdict(shape) if shape else None,
            "generator_late_s": sent.get("late_s"),
            "wrong_blocks": wrong,
            "refused_blocks": refused,
            "slices": self._slices(order.seconds),
        }

    def _count(self, now_ns: int) -> None:
        wrong, refused, failed = self._before
        path = self._path
        self._counts.append(
            (now_ns, path.wrong - wrong, path.refused - refused, path.failed - failed)
        )

    def _slices(self, seconds: float) -> list[dict[str, float]]:
        """Asked, answered in time, wrong, refused and failed of each slice of the load."""
        start_ns = min(self._asked_ns, default=0)
        edges = start_ns + np.arange(0, seconds + SLICE_S, SLICE_S) * 1e9
        asked, _ = np.histogram(self._asked_ns, edges)
        good = [m for m, answered in self._answers if answered - m <= IN_TIME_S * 1e9]
        in_time, _ = np.histogram(good, edges)
        at = np.array([row[0] for row in self._counts], dtype=np.float64)
        totals = np.array([row[1:] for row in self._counts], dtype=np.float64)
        rows = [np.interp(edges, at, column) for column in totals.T]
        names = ("wrong_blocks", "refused_blocks", "failed")
        return [
            {"at_s": i * SLICE_S, "asked": int(asked[i]), "in_time": int(in_time[i])}
            | {n: float(row[i + 1] - row[i]) for n, row in zip(names, rows, strict=True)}
            for i in range(len(asked))
        ]
