"""The page of checked claims: equal to the calculator, and right where a number is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.advise.plan.claims import claims, histogram_quantile, page

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "claims.md"


def test_the_page_is_what_the_calculator_prints() -> None:
    """docs/reference/claims.md holds exactly the computed numbers (`pagoda plan claims`)."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("16 KB of KV", "327,680 B a token; 40,960 B a rank at TP 8"),
        ("122,880", "16,384"),
        ("5 million", "244,140 tokens"),
        ("1.2 GiB", "0.305 GiB"),
        ("9.6 MB/s", "197 GB/s"),
        ("66 ms", "84.8% must overlap"),
        ("4.0 x8", "4.0 x8: 15.75 GB/s; 4.0 x4: 7.88 GB/s"),
        ("5.0 x4", "5.0 x4: 15.75 GB/s"),
        ("30 to 35 ms", "7.7 to 8.9 GB/s; 4.0 x16 takes 8.5 ms"),
        ("2.8 GB/s", "95.9 ms, of which 75.9 ms show"),
        ("NVLink 3 is 150", "600 GB/s marketed, 300 GB/s one way, 50 GB/s a link"),
        ("gradients", "160 all-reduces a step"),
        ("310 tokens/s", "70B: 218 tokens/s"),
    ],
)
def test_known_numbers_are_right(said: str, number: str) -> None:
    """Numbers that follow from public facts alone, computed here by hand, appear as such."""
    found = [claim for claim in claims() if said in claim.said]
    assert len(found) == 1
    assert number in found[0].number


def test_every_claim_has_all_its_parts() -> None:
    """At least the twenty-odd claims of the plan are answered, each with words and a number."""
    assert len(claims()) >= 22
    for claim in claims():
        assert claim.right
        assert any(character.isdigit() for character in claim.number)


def test_communication_outweighs_computing_over_pcie() -> None:
    """The page says so in words; its number must stay above one."""
    claim = next(c for c in claims() if "several hosts" in c.said)
    assert float(claim.number.rsplit(" ", 1)[-1]) > 1


def test_quantiles_of_raw_counters_miss_what_happens_now() -> None:
    """A slow five minutes vanish in the counters of a fast hour and show in their increase."""
    before, now = [(1.0, 99_000.0), (10.0, 99_900.0)], [(1.0, 0.0), (10.0, 900.0)]
    assert histogram_quantile(0.99, before) <= 1.0
    assert histogram_quantile(0.99, now) > 9.0
