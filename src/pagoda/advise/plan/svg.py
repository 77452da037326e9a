"""A line plot as SVG, written by hand: no dependency, readable in light and dark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 44, 56
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#555}.t{font-size:15px;font-weight:600}"
    ".a{stroke:#888;stroke-width:1}.g{stroke:#888;stroke-opacity:.25}"
    ".l{fill:none;stroke:#2a6fbb;stroke-width:2.5}.i{fill:none;stroke:#888;stroke-dasharray:5 4}"
    ".p{fill:#2a6fbb}.k{stroke:#c2410c;stroke-width:1.5;stroke-dasharray:3 3}"
)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A measured line, an ideal one (dashed) and a marked x; x is drawn on a scale of doublings."""

    title: str
    x_label: str
    y_label: str
    points: tuple[tuple[float, float], ...]
    ideal: tuple[tuple[float, float], ...] = ()
    marked: float | None = None
    mark_label: str = ""

    def draw(self) -> str:
        """Return the plot as an SVG document."""
        assert self.points, "a plot has at least one point"
        parts = [*self._frame(), *self._lines(), *self._mark()]
        body = "\n".join(parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'role="img" aria-label="{escape(self.title)}">\n<style>{_STYLE}</style>\n'
            f"{body}\n</svg>\n"
        )

    def _x(self, value: float) -> float:
        low, high = (math.log2(v) for v in self._x_range())
        share = (math.log2(value) - low) / (high - low) if high > low else 0.5
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def _x_range(self) -> tuple[float, float]:
        values = [x for x, _ in self.points]
        return min(values), max(values)

    def _y(self, value: float) -> float:
        share = value / self._top()
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def _top(self) -> float:
        highest = max(y for _, y in (*self.points, *self.ideal))
        if highest <= 0:
            return 1.0
        step = 10.0 ** math.floor(math.log10(highest))
        return next(step * m for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * m >= highest)

    def _frame(self) -> list[str]:
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        parts = [
            f'<text class="t" x="{_LEFT}" y="24">{escape(self.title)}</text>',
            f'<line class="a" x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>',
            f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 12}" text-anchor="middle">'
            f"{escape(self.x_label)}</text>",
            f'<text transform="translate(18 {(_TOP + bottom) / 2}) rotate(-90)" '
            f'text-anchor="middle">{escape(self.y_label)}</text>',
        ]
        for i in range(5):
            value = self._top() * i / 4
            y = self._y(value)
            parts.append(f'<line class="g" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
            parts.append(
                f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,.4g}</text>'
            )
        for x, _ in self.points:
            parts.append(
                f'<text x="{self._x(x):.1f}" y="{bottom + 18}" text-anchor="middle">{x:g}</text>'
            )
        return parts

    def _lines(self) -> list[str]:
        parts = []
        if self.ideal:
            parts.append(f'<polyline class="i" points="{self._path(self.ideal)}"/>')
        parts.append(f'<polyline class="l" points="{self._path(self.points)}"/>')
        parts += [
            f'<circle class="p" cx="{self._x(x):.1f}" cy="{self._y(y):.1f}" r="4"/>'
            for x, y in self.points
        ]
        return parts

    def _path(self, points: tuple[tuple[float, float], ...]) -> str:
        return " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in points)

    def _mark(self) -> list[str]:
        if self.marked is None:
            return []
        x = self._x(self.marked)
        return [
            f'<line class="k" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}"/>',
            f'<text x="{x + 6:.1f}" y="{_TOP + 12}">{escape(self.mark_label)}</text>',
        ]
