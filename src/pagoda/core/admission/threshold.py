"""What a write has to be worth, so that writing keeps to the pace that a budget allows.

Written above that pace, the threshold rises; below it, it falls until what is spared would be
spared for nothing. Where no budget says what writes cost, it stands still.
"""

from __future__ import annotations

import math

_SPAN_S = 300.0  # what "of late" means, and how fast the threshold follows
_STEEPEST = 3.0  # the threshold moves by e**3 a span at most
_LEAST, _CEILING = 0.05, 32.0


class Threshold:
    """Worth is in multiples of what is usual. Times are seconds of one monotonic clock."""

    def __init__(self, start: float) -> None:
        assert _LEAST <= start <= _CEILING, "a threshold starts where it may be"
        self._start = start  # and stays without a budget
        self._value = start
        self._written = 0.0  # bytes of late, fading
        self._at_s: float | None = None

    def at(self, now_s: float, pace: float | None) -> float:
        """The threshold now, at this pace in bytes a second; None: without a limit."""
        passed_s = 0.0 if self._at_s is None else max(0.0, now_s - self._at_s)
        self._at_s = now_s if self._at_s is None else max(now_s, self._at_s)
        if pace is None:
            self._value = self._start
        else:
            self._move(passed_s, pace)
        self._written *= math.exp(-passed_s / _SPAN_S)
        return self._value

    def wrote(self, size_bytes: int) -> None:
        """So much is being written now."""
        self._written += size_bytes

    def _move(self, passed_s: float, pace: float) -> None:
        rate, least = self._written / _SPAN_S, math.exp(-_STEEPEST)
        over = min(max(rate / pace if pace > 0 else math.inf, least), 1 / least)
        self._value *= over ** min(1.0, passed_s / _SPAN_S)
        self._value = min(max(self._value, _LEAST), _CEILING)
