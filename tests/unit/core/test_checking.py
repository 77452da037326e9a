"""The measure of two blocks, what it means, and whom the sampler chooses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.checking import TOLERANCES, Form, Sampler, Verdict, difference, judge
from pagoda.settings.tree import Check

_PARTS, _NUMBERS = 6, 32
_KINDS = {"float32": "<f4", "float16": "<f2"}
DTYPES = pytest.mark.parametrize("dtype", sorted(TOLERANCES))


def form_of(dtype: str, *, exact: bool = False) -> Form:
    width = 4 if dtype == "float32" else 2
    return Form(dtype=dtype, parts=_PARTS, part_bytes=_NUMBERS * width, exact=exact)


def payload_of(numbers: np.ndarray, dtype: str, padding: bytes = b"") -> memoryview:
    """Numbers as a block has them; bfloat16 is cut off, as hardware may."""
    if dtype == "bfloat16":
        data = (numbers.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    else:
        data = numbers.astype(_KINDS[dtype]).tobytes()
    return memoryview(data + padding)


def read_back(payload: memoryview, dtype: str) -> np.ndarray:
    """What is in a block, by the definition of its type and one number at a time."""
    width = 4 if dtype == "float32" else 2
    found = []
    for at in range(0, _PARTS * _NUMBERS * width, width):
        bits = bytes(payload[at : at + width])
        if dtype == "bfloat16":
            found.append(np.frombuffer(b"\0\0" + bits, "<f4")[0])
        else:
            found.append(np.frombuffer(bits, _KINDS[dtype])[0])
    return np.array(found, np.float64).reshape(_PARTS, _NUMBERS)


def naive(one: np.ndarray, other: np.ndarray) -> float:
    """The definition, part by part."""
    worst = 0.0
    for mine, theirs in zip(one, other, strict=True):
        longest = max(math.dist(mine, 0 * mine), math.dist(theirs, 0 * theirs))
        worst = max(worst, math.dist(mine, theirs) / longest if longest else 0.0)
    return worst


def numbers_of(seed: int, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, (_PARTS, _NUMBERS))


@DTYPES
@given(seed=st.integers(0, 2**32), noise=st.sampled_from([0.0, 1e-4, 0.01, 0.3, 5.0]))
def test_the_difference_is_that_of_the_worst_part(dtype: str, seed: int, noise: float) -> None:
    """It is what the definition says, whatever the type of the numbers."""
    one = numbers_of(seed)
    other = one + numbers_of(seed + 1, noise) * np.arange(_PARTS)[:, None]
    stored, computed = payload_of(one, dtype), payload_of(other, dtype)
    expected = naive(read_back(stored, dtype), read_back(computed, dtype))
    assert difference(stored, computed, form_of(dtype)) == pytest.approx(expected, rel=1e-4)
    assert difference(computed, stored, form_of(dtype)) == pytest.approx(expected, rel=1e-4)


@DTYPES
def test_padding_is_not_compared(dtype: str) -> None:
    """Bytes behind the last part say nothing."""
    numbers = numbers_of(1)
    one = payload_of(numbers, dtype, b"\x01" * 10)
    assert difference(one, payload_of(numbers, dtype, b"\x02" * 10), form_of(dtype)) == 0.0


@DTYPES
def test_numbers_that_are_none_are_as_far_as_can_be(dtype: str) -> None:
    """A NaN or an infinity is no noise; but equal bytes are equal."""
    for bad in (np.nan, np.inf, -np.inf):
        numbers = numbers_of(2)
        numbers[3, 7] = bad
        broken, sound = payload_of(numbers, dtype), payload_of(numbers_of(2), dtype)
        assert difference(broken, sound, form_of(dtype)) == math.inf
        assert difference(sound, broken, form_of(dtype)) == math.inf
        assert judge(math.inf, form_of(dtype)) is Verdict.WRONG
        assert difference(broken, broken, form_of(dtype)) == 0.0


def test_large_numbers_do_not_run_over() -> None:
    """Squares of a float32's largest numbers are no float32; their share is told all the same."""
    numbers = numbers_of(3, 1e37).clip(-3e38, 3e38)
    stored, computed = payload_of(numbers, "float32"), payload_of(numbers * 1.01, "float32")
    assert difference(stored, computed, form_of("float32")) == pytest.approx(0.01, rel=0.02)


@DTYPES
def test_noise_of_the_type_is_close_and_other_numbers_are_wrong(dtype: str) -> None:
    """Rounding differs by less than the tolerance, unrelated numbers by far more."""
    numbers = numbers_of(4)
    rounded = payload_of(numbers * (1 + 0.5 * TOLERANCES[dtype]), dtype)
    near = difference(payload_of(numbers, dtype), rounded, form_of(dtype))
    far = difference(payload_of(numbers, dtype), payload_of(numbers_of(5), dtype), form_of(dtype))
    assert judge(near, form_of(dtype)) is Verdict.CLOSE
    assert judge(far, form_of(dtype)) is Verdict.WRONG
    assert judge(near, form_of(dtype, exact=True)) is Verdict.WRONG
    assert judge(0.0, form_of(dtype, exact=True)) is Verdict.EQUAL


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.2, 1.0])
def test_the_share_that_is_chosen_is_the_rate(rate: float) -> None:
    """Over many questions; and the same key chooses the same ones."""
    sampler, again = Sampler(rate, b"k"), Sampler(rate, b"k")
    chosen = [sampler.choose() for _ in range(20_000)]
    assert chosen == [again.choose() for _ in range(20_000)]
    deviation = math.sqrt(20_000 * rate * (1 - rate))
    assert abs(sum(chosen) - 20_000 * rate) <= 5 * deviation
    assert sampler.active == (rate > 0)


def test_another_key_chooses_others() -> None:
    """Who does not know the key cannot tell which requests are checked."""
    one, other = Sampler(0.5, b"a"), Sampler(0.5, b"b")
    assert [one.choose() for _ in range(64)] != [other.choose() for _ in range(64)]


def test_the_key_of_all_tests_chooses_nothing_for_long() -> None:
    """What tests/conftest.py promises of the default rate."""
    sampler = Sampler(Check().rate, b"tests 1405")
    assert not any(sampler.choose() for _ in range(6_930))
