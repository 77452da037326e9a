"""The page of causes is the one that the rules would give now."""

from __future__ import annotations

from pathlib import Path

from pagoda.advise.doctor import causes
from pagoda.advise.doctor.reference import page

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "causes.md"


def test_the_page_has_not_drifted() -> None:
    """When this fails, run the command that the page's first comment names."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_cause_has_its_section() -> None:
    """No cause is left out."""
    text = page()
    assert all(f"### {cause.id}\n" in text for cause in causes())
