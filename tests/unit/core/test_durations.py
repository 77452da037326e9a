"""Durations as people say them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.durations import human_duration

SIZES = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def seconds_of(text: str) -> int:
    """The sum of what is said."""
    return sum(int(part[:-1]) * SIZES[part[-1]] for part in text.split())


@given(st.integers(1, 10**9))
def test_whole_seconds_are_said_exactly(seconds: int) -> None:
    """Each unit once, the largest first, and none that is more than the next larger one."""
    parts = human_duration(seconds).split()
    assert seconds_of(" ".join(parts)) == seconds
    units = [part[-1] for part in parts]
    assert units == [unit for unit in SIZES if unit in units]
    most = {"d": 10**9, "h": 24, "m": 60, "s": 60}
    assert all(0 < int(part[:-1]) < most[part[-1]] for part in parts)


@given(st.floats(1, 1e9), st.integers(1, 3))
def test_fewer_units_are_as_near_as_they_can_be(seconds: float, parts: int) -> None:
    """Off by at most half of the last unit, and never more units than asked for."""
    text = human_duration(seconds, parts=parts)
    assert len(text.split()) <= parts
    first = next(at for at, size in enumerate(SIZES.values()) if seconds >= size)
    last = list(SIZES.values())[min(first + parts, 4) - 1]
    assert abs(seconds_of(text) - seconds) <= last / 2


def test_short_and_endless_ones_are_numbers_too() -> None:
    """Below a second, and beyond what anybody counts in hours."""
    assert [human_duration(s) for s in (0, 0.5, 7140, 1e300)] == [
        "0s", "0.5s", "1h 59m", f"{1e300 / 86_400:.3g}d",
    ]  # fmt: skip
