"""The threshold of a write's worth follows the pace that a budget allows."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.admission.threshold import Threshold

BLOCK = 1000


def written(pace: float | None, *, offers_a_second: float, hours: float, start: float) -> float:
    """Bytes a second that are written over the last half of some hours, when blocks of evenly
    spread worth between 0 and 1 are offered."""
    threshold, rng = Threshold(start), random.Random(7)
    size_bytes, now_s, end_s = 0, 0.0, hours * 3600
    while now_s < end_s:
        now_s += 1 / offers_a_second
        if rng.random() >= threshold.at(now_s, pace):
            threshold.wrote(BLOCK)
            size_bytes += BLOCK if now_s > end_s / 2 else 0
    return size_bytes / (end_s / 2)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_writes_keep_to_the_pace(share: float) -> None:
    """Whatever share of the offered bytes the budget allows, about that much is written."""
    offers = 5.0
    pace = share * offers * BLOCK
    found = written(pace, offers_a_second=offers, hours=4, start=0.05)
    assert found == pytest.approx(pace, rel=0.25)


def test_it_stands_still_without_a_budget() -> None:
    """Where nothing says what writes cost, what is not worth the start stays unwritten."""
    found = written(None, offers_a_second=5.0, hours=1, start=0.6)
    assert found == pytest.approx(0.4 * 5 * BLOCK, rel=0.1)


def test_an_ample_budget_is_used() -> None:
    """With much to spend, nearly all is written: a write that was spared brings no hit. (A start
    that held as a floor had cost hits on drives that could have been written all day.)"""
    found = written(1e12, offers_a_second=5.0, hours=2, start=0.6)
    assert found == pytest.approx(0.95 * 5 * BLOCK, rel=0.1)


@given(st.floats(0.05, 1), st.floats(0, 1e6), st.integers(0, 10**9))
def test_nothing_is_shut_out_for_ever(start: float, pace: float, burst: int) -> None:
    """With nothing more written, the threshold comes down to its least."""
    threshold = Threshold(start)
    threshold.at(0.0, pace)
    threshold.wrote(burst)
    now_s = 0.0
    for _ in range(2000):
        now_s += 60
        last = threshold.at(now_s, max(pace, 1.0))
        assert last >= 0.05
    assert last == 0.05


def test_a_clock_that_stands_or_goes_back_changes_nothing() -> None:
    """Only time that passes moves the threshold."""
    threshold = Threshold(0.5)
    threshold.at(10.0, 1.0)
    threshold.wrote(10**9)
    assert threshold.at(10.0, 1.0) == threshold.at(3.0, 1.0) == 0.5
    assert threshold.at(11.0, 1.0) > 0.5
