"""A drawing of a host's GPUs: one circle a GPU, NVLink and PCIe as lines, groups as colours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from pagoda.advise.topology.links import Link
from pagoda.advise.topology.matrix import Matrix
from pagoda.advise.topology.report import Report

__all__ = ["COLOURS", "draw"]

COLOURS = {
    "NV": "#2e8b57",
    "PIX": "#3b7dd8",
    "PXB": "#6f9fe0",
    "PHB": "#d09a2c",
    "NODE": "#d98032",
    "SYS": "#c4c4c4",
}
_GROUPS = ("#dff0e4", "#e3ebf8", "#f8ecdc", "#f3e2ee", "#e6f3f3", "#f5f3da", "#ece6f6", "#f2e6e2")
_SIZE = 720
_RADIUS = 250
_MIDDLE = _SIZE / 2


def draw(report: Report) -> str:
    """The drawing as SVG text; a report without a matrix gives its reason alone."""
    body = [_words(report.reason, 28)]
    if report.matrix is not None:
        body += [*_lines(report.matrix), *_circles(report), *_legend(report.matrix)]
    inside = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" '
        f'font-family="sans-serif" font-size="14">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{inside}\n</svg>\n'
    )


def _words(text: str, y: float, x: float = 16, colour: str = "#222") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}">{escape(text)}</text>'


def _place(k: int, count: int) -> tuple[float, float]:
    angle = 2 * math.pi * k / count - math.pi / 2
    return _MIDDLE + _RADIUS * math.cos(angle), _MIDDLE + 20 + _RADIUS * math.sin(angle)


def _lines(matrix: Matrix) -> Iterator[str]:
    """Slow links first, so that fast ones lie on top."""
    spot = {gpu: _place(k, len(matrix.gpus)) for k, gpu in enumerate(matrix.gpus)}
    order = list(COLOURS)
    for (left, right), link in sorted(
        matrix.links.items(), key=lambda item: -order.index(item[1].kind)
    ):
        (x1, y1), (x2, y2) = spot[left], spot[right]
        yield (
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{COLOURS[link.kind]}" stroke-width="{_width(link):.1f}">'
            f"<title>GPU{left}–GPU{right}: {link.name}</title></line>"
        )


def _width(link: Link) -> float:
    return 1.5 + link.width / 6 if link.kind == "NV" else {"SYS": 0.7}.get(link.kind, 1.8)


def _circles(report: Report) -> Iterator[str]:
    matrix = report.matrix
    assert matrix is not None, "the caller draws circles only for a matrix"
    groups = report.proposals[len(report.chosen)].groups if report.chosen else ()
    for k, gpu in enumerate(matrix.gpus):
        x, y = _place(k, len(matrix.gpus))
        near = matrix.affinity.get(gpu)
        numa = "" if near is None or near.numa is None else f"NUMA {near.numa}"
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="34" fill="{_fill(gpu, groups)}" stroke="#555"/>'
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-weight="bold">GPU{gpu}</text>'
            f'<text x="{x:.1f}" y="{y + 15:.1f}" text-anchor="middle" font-size="10">'
            f"{escape(numa)}</text>"
        )


def _fill(gpu: int, groups: Sequence[Sequence[int]]) -> str:
    mine = next((k for k, group in enumerate(groups) if gpu in group), None)
    return "#ffffff" if mine is None else _GROUPS[mine % len(_GROUPS)]


def _legend(matrix: Matrix) -> Iterator[str]:
    kinds = [kind for kind in COLOURS if any(link.kind == kind for link in matrix.links.values())]
    for k, kind in enumerate(kinds):
        y = _SIZE - 14 - 20 * (len(kinds) - 1 - k)
        yield f'<rect x="16" y="{y - 10}" width="22" height="5" fill="{COLOURS[kind]}"/>'
        yield _words("NVLink" if kind == "NV" else kind, y - 3, 46)
