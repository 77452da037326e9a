"""Sizes and durations: what people write is read exactly, and written back the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.settings.units import (
    DURATION_LIMIT_S,
    DURATION_UNITS,
    SIZE_LIMIT_BYTES,
    SIZE_UNITS,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


@given(st.integers(0, SIZE_LIMIT_BYTES))
def test_size_survives_the_round_trip(size_bytes: int) -> None:
    """Formatting a size and parsing it gives the same number of bytes."""
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.integers(0, 1 << 20), st.sampled_from(sorted(SIZE_UNITS)), st.booleans())
def test_size_is_count_times_unit(count: int, unit: str, spaced: bool) -> None:
    """A count with a unit is that many units, in any case, with or without a space."""
    text = f"{count} {unit}" if spaced else f"{count}{unit}"
    assert parse_size(text) == parse_size(text.upper()) == count * SIZE_UNITS[unit]


@given(st.integers(0, 1 << 20), st.sampled_from(sorted(SIZE_UNITS)))
def test_formatted_size_is_never_longer(count: int, unit: str) -> None:
    """The spelling chosen is at most as long as the one a person chose."""
    assert len(format_size(count * SIZE_UNITS[unit])) <= len(f"{count}{unit}")


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (4_294_967_296, "4GiB"),
        (512_000_000, "512MB"),
        (128_000, "128kB"),
        (1_000, "1kB"),
        (7, "7B"),
    ],
)
def test_size_examples(size_bytes: int, text: str) -> None:
    """What the documents promise, in numbers; of two exact spellings the shorter is taken."""
    assert parse_size(text) == size_bytes
    assert format_size(size_bytes) == text


@given(st.floats(0, DURATION_LIMIT_S))
def test_duration_survives_the_round_trip(seconds: float) -> None:
    """Formatting a duration and parsing it gives the same float, to the last bit."""
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, 365), st.sampled_from(sorted(DURATION_UNITS)))
def test_duration_is_count_times_unit(count: int, unit: str) -> None:
    """A count with a unit is that many units."""
    assert parse_duration(f"{count}{unit}") == float(count * DURATION_UNITS[unit])


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("2m", 120), ("30", 30), (30, 30), (1e-05, 1e-05)]
)
def test_duration_examples(text: object, seconds: float) -> None:
    """Bare numbers are seconds, m is minutes, floats may be tiny."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["4G", "4m", "1k"])
def test_size_without_b_is_refused_as_ambiguous(text: str) -> None:
    """4G could be 4GB or 4GiB: the error offers both."""
    with pytest.raises(ValueError, match=r"ambiguous: write .iB \(1024\) or .B \(1000\)"):
        parse_size(text)


@pytest.mark.parametrize("parse", [parse_size, parse_duration])
@pytest.mark.parametrize(
    "value", ["", "-1", "GiB", "1 2", "1e3", "NaN", "inf", "4XB", "٤GiB", True, None, [], "9" * 400]
)
def test_nonsense_is_refused(parse: object, value: object) -> None:
    """Signs, exponents, other digits, unknown units, other types and absurd amounts are errors."""
    assert callable(parse)
    with pytest.raises(ValueError, match=r"."):
        parse(value)


@given(st.text(max_size=20))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    """No text makes the parsers fail in another way than ValueError."""
    for parse, limit in ((parse_size, SIZE_LIMIT_BYTES), (parse_duration, DURATION_LIMIT_S)):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert 0 <= value <= limit
