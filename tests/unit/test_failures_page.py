"""docs/design/failures.md names the tests that prove it; they have to be there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists() -> None:
    """A renamed test must not leave a claim without its proof."""
    page = (ROOT / "docs/design/failures.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = {name for source in sources for name in re.findall(r"def (test_\w+)\(", source)}
    assert len(named) > 40
    assert named <= there, f"not there: {sorted(named - there)}"


def test_every_counter_and_reason_that_the_page_names_exists() -> None:
    """An operator who looks for one of them finds it."""
    page = (ROOT / "docs/design/failures.md").read_text(encoding="utf-8")
    metrics = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:blocks|slots|tier|drive)_\w+)(?:\{\w+\})?`", page):
        assert re.search(rf"`pagoda_{name}(_total)?`", metrics), name
    words = ("events.py", "checking.py")
    core = ROOT / "src/pagoda/core"
    known = "".join((core / name).read_text(encoding="utf-8") for name in words)
    for reason in re.findall(r"\{(\w+)\}", page):
        assert reason == "reason" or f'"{reason}"' in known, reason
