"""A clock that moves when it is told to."""

from __future__ import annotations


class FakeClock:
    """Monotonic seconds under the test's control; call it to read it."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self._now_s = start_s
        self._wall_ahead_s = 0.0
        self.gained_s = 0.0  # by how much the wall clock was ever set forward, in all

    def __call__(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds >= 0, "a monotonic clock does not go back"
        self._now_s += seconds

    def shift_wall_s(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP does."""
        self._wall_ahead_s += seconds
        self.gained_s += max(0.0, seconds)

    def wall_ms(self) -> int:
        """The same instant as milliseconds since some epoch, never before it."""
        return max(0, int((self._now_s + self._wall_ahead_s) * 1000))
