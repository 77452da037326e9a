"""Sizes and durations as people write them: "4GiB", "512MB", "30s", "500ms".

Parsing is exact (rational arithmetic); formatting picks the shortest exact spelling, so that
`parse_size(format_size(n)) == n` and `parse_duration(format_duration(s)) == s`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

SIZE_UNITS: Mapping[str, int] = {
    "TiB": 1 << 40,
    "TB": 10**12,
    "GiB": 1 << 30,
    "GB": 10**9,
    "MiB": 1 << 20,
    "MB": 10**6,
    "KiB": 1 << 10,
    "kB": 10**3,
    "B": 1,
}
DURATION_UNITS: Mapping[str, Fraction] = {
    "d": Fraction(86_400),
    "h": Fraction(3_600),
    "min": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1_000),
    "us": Fraction(1, 1_000_000),
}
SIZE_LIMIT_BYTES = (1 << 63) - 1  # what a file offset can hold
DURATION_LIMIT_S = 365 * 86_400  # well below where a wait overflows the platform's timers

_SIZES_BY_FOLDED_UNIT = {unit.lower(): factor for unit, factor in SIZE_UNITS.items()}
_QUANTITY = re.compile(r"\s*([0-9]{1,400}(?:\.[0-9]{1,400})?)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(value: object) -> int:
    """Bytes of "4GiB", "1.5 GB", "4096" or 4096. Units: B, kB, MB, GB, TB (powers of ten) and
    KiB, MiB, GiB, TiB (powers of two), in any case; part of a byte is dropped. Raises
    ValueError; "4G" is refused, for it could mean either."""
    number, unit = _split(value, example="4GiB")
    if unit.upper() in {"K", "M", "G", "T"}:
        prefix = unit.upper()
        raise ValueError(f"is ambiguous: write {prefix}iB (1024) or {prefix}B (1000)")
    factor = _SIZES_BY_FOLDED_UNIT.get(unit.lower() or "b")
    if factor is None:
        raise ValueError(f"is in {unit!r}, which is no unit of size: use {', '.join(SIZE_UNITS)}")
    size_bytes = int(number * factor)
    if size_bytes > SIZE_LIMIT_BYTES:
        raise ValueError("is larger than any file can be")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """The shortest exact spelling: 4294967296 → "4GiB", 512000000 → "512MB", 0 → "0B"."""
    if size_bytes == 0:
        return "0B"
    exact = (f"{size_bytes // f}{unit}" for unit, f in SIZE_UNITS.items() if size_bytes % f == 0)
    return min(exact, key=len)


def parse_duration(value: object) -> float:
    """Seconds of "30s", "500ms", "2min", "1.5h", "30" or 30. Units: us, ms, s, m or min, h, d.
    A bare number is in seconds. Raises ValueError."""
    number, unit = _split(_without_exponent(value), example="30s")
    factor = DURATION_UNITS.get({"": "s", "m": "min"}.get(unit.lower(), unit.lower()))
    if factor is None:
        known = ", ".join(DURATION_UNITS)
        raise ValueError(f"is in {unit!r}, which is no unit of time: use {known}")
    if number * factor > DURATION_LIMIT_S:
        raise ValueError("is longer than a year")
    return float(number * factor)


def format_duration(seconds: float) -> str:
    """The shortest exact spelling: 0.5 → "500ms", 90.0 → "90s", 7200.0 → "2h"."""
    if seconds == 0:
        return "0s"
    exact = Fraction(repr(float(seconds)))
    spellings = [f"{_without_exponent(float(seconds))}s"]
    for unit, factor in DURATION_UNITS.items():
        count = exact / factor
        if count.denominator == 1:
            spellings.append(f"{count}{unit}")
    return min(spellings, key=len)


def _without_exponent(value: object) -> object:
    """A float as plain decimals ("1e-05" → "0.00001"); anything else as it is."""
    return f"{Decimal(repr(value)):f}" if isinstance(value, float) else value


def _split(value: object, *, example: str) -> tuple[Fraction, str]:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"must be a text such as {example!r}, or a whole number")  # noqa: TRY004
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"is not a number with a unit, such as {example!r}")
    return Fraction(match[1]), match[2]
