"""Durations as people say them: "30d", "1h 59m", "0.5s". Settings have a spelling of their own,
which is parsed again (`settings.units`)."""

from __future__ import annotations

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_LONGEST_S = 1e5 * 86_400  # longer than anybody says in days and hours


def human_duration(seconds: float, *, parts: int = 4) -> str:
    """At most `parts` units from the largest that fits, rounded to the last of them: 7140 → "1h
    59m". `seconds` is finite and not negative."""
    if seconds < 1:
        return f"{seconds:g}s"
    if seconds > _LONGEST_S:
        return f"{seconds / 86_400:.3g}d"
    first = next(at for at, (_, size) in enumerate(_UNITS) if seconds >= size)
    smallest = _UNITS[min(first + parts, len(_UNITS)) - 1][1]
    left = round(seconds / smallest) * smallest
    told = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            told.append(f"{count}{unit}")
    return " ".join(told)
