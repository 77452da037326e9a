"""Order statistics against numpy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.lab.bench.stats import Percentiles, Spread, paired_ratio, percentile

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


@given(values, st.floats(0, 100))
def test_percentile_equals_numpy(sample: list[float], percent: float) -> None:
    """Any percentile of any sample is numpy's, to rounding."""
    ours = percentile(sorted(sample), percent)
    assert ours == pytest.approx(float(np.percentile(sample, percent)), rel=1e-9, abs=1e-6)


@given(values)
def test_percentiles_are_numpys_in_one_object(sample: list[float]) -> None:
    """Percentiles.of does not depend on the order and holds numpy's values."""
    shape = Percentiles.of(reversed(sample))
    assert shape is not None
    expected = [float(np.percentile(sample, p)) for p in (50, 90, 99, 100)]
    assert [shape.p50, shape.p90, shape.p99, shape.max] == pytest.approx(expected, abs=1e-6)
    assert shape.mean == pytest.approx(float(np.mean(sample)), abs=1e-6)
    assert shape.count == len(sample)


def test_nothing_measured_has_no_percentiles() -> None:
    """An empty sample is None, not zero milliseconds."""
    assert Percentiles.of([]) is None


@given(values)
def test_spread_brackets_its_median(sample: list[float]) -> None:
    """A spread's ends are the extremes and its median numpy's."""
    spread = Spread.of(sample)
    assert (spread.low, spread.high, spread.runs) == (min(sample), max(sample), len(sample))
    assert spread.median == pytest.approx(float(np.median(sample)), abs=1e-6)


def test_paired_ratio_cancels_a_machine_that_slows_down() -> None:
    """When both sides of each pair slow down alike, the ratio stays put."""
    slow_down = [1.0, 1.5, 4.0, 9.0]
    ratio = paired_ratio([3.0 * s for s in slow_down], [2.0 * s for s in slow_down])
    assert math.isclose(ratio.low, 1.5)
    assert math.isclose(ratio.high, 1.5)
