"""Pictures of replays: what is drawn is what the report says."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pagoda.lab.replay import picture
from pagoda.lab.replay.cells import WRITES
from pagoda.lab.replay.policies import POLICIES

pytest.importorskip("matplotlib", reason="pictures need matplotlib")
from matplotlib.colors import to_hex

TRACE = {"name": "t", "requests": 3, "unique_blocks": 100}


def row(policy: str, percent: float, **more: Any) -> dict[str, Any]:
    """A row as reports have it, as far as pictures read it."""
    return {"policy": policy, "capacity_pct": percent, "token_hit_pct": 9 * percent, **more}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved."""
    figures: list[Any] = []
    save = picture.save

    def keep(figure: Any, path: Path) -> None:
        figures.append(figure)
        save(figure, path)

    monkeypatch.setattr(picture, "save", keep)
    return figures


def test_one_tier_is_a_line_a_policy_and_the_bound(tmp_path: Path, drawn: list[Any]) -> None:
    """In order of capacity, however the rows are; the bound is dashed."""
    rows = [row("lru", 5), row("lru", 1), row("belady", 1), row("belady", 5)]
    picture.draw({"trace": TRACE, "rows": rows}, tmp_path / "hits.png")
    assert (tmp_path / "hits.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = drawn[0].axes
    lines = {line.get_label(): line for line in axes.lines}
    assert set(lines) == {"lru", "belady"}
    assert list(lines["lru"].get_xdata()) == [1, 5]
    assert list(lines["lru"].get_ydata()) == [9, 45]
    assert [lines[name].get_linestyle() for name in ("lru", "belady")] == ["-", "--"]


@pytest.mark.parametrize("kinds", [None, WRITES])
def test_no_two_lines_look_alike(
    tmp_path: Path, drawn: list[Any], kinds: tuple[str, ...] | None
) -> None:
    """With every policy there is, and every kind of writing: each line has a colour of its own, and
    another marker than those before and behind it."""
    more = {"mean_stall_ms": 1.0, "written_bytes": 1}
    rows = [
        row(policy, percent, **({"writes": kind, **more} if kind else {}))
        for policy in POLICIES
        for kind in kinds or (None,)
        for percent in (1, 5)
    ]
    picture.draw({"trace": TRACE, "rows": rows}, tmp_path / "hits.svg")
    for axes in drawn[0].axes:
        colours = [to_hex(line.get_color()) for line in axes.lines]
        markers = [line.get_marker() for line in axes.lines]
        assert len(set(colours)) == len(colours) == len(POLICIES) * len(kinds or (None,))
        assert all(one != other for one, other in pairwise(markers))


def test_two_tiers_show_hits_stalls_and_writes(tmp_path: Path, drawn: list[Any]) -> None:
    """One below the other, a line a policy and kind of writing."""
    rows = [
        row("lru", 5, writes=writes, mean_stall_ms=4.0, written_bytes=3 << 30)
        for writes in ("spill", "reuse")
    ]
    picture.draw({"trace": TRACE, "rows": rows}, tmp_path / "hits.svg")
    assert "<svg" in (tmp_path / "hits.svg").read_text()
    assert [list(axes.lines[0].get_ydata()) for axes in drawn[0].axes] == [[45], [4.0], [3.0]]
    assert [line.get_label() for line in drawn[0].axes[0].lines] == ["lru, spill", "lru, reuse"]
