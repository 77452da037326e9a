"""Reports: gaps, drive lives, names of rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.advise.plan.economics import Drive
from pagoda.lab.replay.report import fill_gaps, label, life_years
from pagoda.lab.replay.table import years

percents = st.floats(0, 100, allow_nan=False)


@given(percents, percents, percents)
def test_the_gap_is_what_lies_between_the_base_and_the_bound(
    base: float, bound: float, mine: float
) -> None:
    """0 for the base, 100 for the bound, between them in proportion; nothing where the two do
    not differ or one is missing."""
    hits = {"lru": base, "belady": bound, "mine": mine}
    rows = [
        {"policy": name, "capacity": "1%", "token_hit_pct": hit, "gap_closed_pct": None}
        for name, hit in hits.items()
    ]
    alone = {"policy": "mine", "capacity": "2%", "token_hit_pct": 7.0, "gap_closed_pct": None}
    fill_gaps([*rows, alone])
    assert alone["gap_closed_pct"] is None
    shares = [row["gap_closed_pct"] for row in rows]
    if bound <= base:
        assert shares == [None] * 3
    else:
        assert shares[:2] == [0.0, 100.0]
        assert base + shares[2] / 100 * (bound - base) == pytest.approx(mine, abs=0.01)


def test_a_drive_lasts_as_long_as_its_rating() -> None:
    """Written its whole size once a day, without wear inside, it lives for the warranty."""
    drive = Drive(capacity_bytes=1e12, write_amplification=1.0)
    assert life_years(10**12, drive=drive, span_s=86_400) == pytest.approx(drive.warranty_years)
    assert life_years(10**12, drive=drive, span_s=43_200) == pytest.approx(2.5)


def test_a_drive_that_is_not_written_has_no_end() -> None:
    """Nor can a trace without times tell one."""
    assert life_years(0, drive=Drive(), span_s=10) is None
    assert life_years(10, drive=Drive(), span_s=0) is None


def test_a_row_of_two_tiers_is_named_by_policy_and_writes() -> None:
    """One of one tier by the policy alone."""
    assert label({"policy": "heat"}) == "heat"
    assert label({"policy": "heat", "writes": "reuse"}) == "heat, reuse"


@given(st.floats(0.0001, 1000))
def test_a_short_life_is_not_told_as_none(value: float) -> None:
    """Whatever is left of it, the figure is right to a twentieth."""
    assert float(years(value).replace(",", "")) == pytest.approx(value, rel=0.051)
    assert years(None) == ""
