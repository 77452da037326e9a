"""A replay as a picture: hits against capacity with the bound, and what two tiers cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from pagoda.advise.plan.facts import GIB
from pagoda.lab.picture import figure_of, save
from pagoda.lab.replay.report import BOUND, Row, distinct, label

_BOUND_STYLE = {"color": "0.35", "linestyle": "--", "zorder": 1.5}
_MARKERS = "osD^vP*X<>ph"
_LEGEND_LINES = 12  # of a column
_NAMED_COLOURS = 10  # of matplotlib's own cycle
_TWO_TIERS = (
    ("token_hit_pct", 1.0, "tokens found, %"),
    ("mean_stall_ms", 1.0, "mean stall, ms"),
    ("written_bytes", 1 / GIB, "written, GiB"),
)


def draw(report: dict[str, Any], path: Path) -> None:
    """Write the picture; its kind is the name's ending. Raises SettingsError."""
    rows, trace = report["rows"], report["trace"]
    two = "writes" in rows[0]
    shown = _TWO_TIERS if two else _TWO_TIERS[:1]
    figure, axes = figure_of(width=7.0, height=9.0 if two else 4.5, rows=len(shown))
    panels = list(axes) if two else [axes]
    for panel, (key, unit, meaning) in zip(panels, shown, strict=True):
        _lines(panel, rows, key, unit)
        panel.set_ylabel(meaning)
        panel.set_ylim(bottom=0)
    panels[0].set_title(f"{trace['name']}: {trace['requests']:,} requests", loc="left")
    columns = ceil(len({label(row) for row in rows}) / _LEGEND_LINES)
    panels[0].legend(frameon=False, fontsize="small" if columns == 1 else "xx-small", ncols=columns)
    where = "memory and drives" if two else "capacity"
    panels[-1].set_xlabel(f"{where}, % of {trace['unique_blocks']:,} unique blocks")
    save(figure, path)


def _lines(axes: Any, rows: Sequence[Row], key: str, unit: float) -> None:
    """A line for each policy (and kind of writing) over a scale of doublings; the bound is
    dashed."""
    named: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        named.setdefault(label(row), []).append((row["capacity_pct"], row[key] * unit))
    styles = _styles(len(named))
    for name, points in named.items():
        style = _BOUND_STYLE if name == BOUND else next(styles)
        axes.plot(*zip(*sorted(points), strict=True), label=name, **style)
    places = sorted(distinct(rows, "capacity_pct"))
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [f"{place:.3g}" for place in places])
    axes.minorticks_off()


def _styles(count: int) -> Iterator[dict[str, Any]]:
    """A style for each of so many lines: no two have one colour, neighbours no one marker."""
    from matplotlib import colormaps  # noqa: PLC0415 - optional, and slow to import

    for index in range(count):
        few = count <= _NAMED_COLOURS
        colour = f"C{index}" if few else colormaps["turbo"](index / (count - 1))
        marker = _MARKERS[index % len(_MARKERS)]
        yield {"color": colour, "marker": marker, "markersize": 4}
