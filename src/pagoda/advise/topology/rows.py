"""Rows of the matrix as text: which lines are rows, and the cells of each.

Cells are read by vocabulary, not by white space, so fused cells (`NODENODE`, `NIC8CPU`,
`SYS0-35`) come apart and a wrapped line can be joined without a blank.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagoda.advise.topology.links import SELF, Link, parse_link

__all__ = ["Header", "Row", "header_of", "join_header", "join_rows", "rows_of", "without_prefix"]

_LINKS = r"PIX|PXB|PHB|NODE|SYS|SOC|NV\d|X(?![a-z])"
_WORD = re.compile(r"PIX|PXB|PHB|NODE|SYS|SOC|NV(\d{1,8})|X(?![a-z])")
_BLANK = re.compile(r"[ \t]*")
# What a log may put before a row: a time, a rank, a pod. Bounded, so the search stays linear.
_LABEL = re.compile(rf"^(?P<before>[^\n]{{0,80}}?)\bGPU(?P<gpu>\d{{1,4}})[ \t]*(?={_LINKS})")
_OTHER_LABEL = re.compile(rf"^[ \t]{{0,16}}(?:NIC\d+|[a-z]\w*\d)[ \t]+(?:{_LINKS})")
_COLUMN = re.compile(r"(?:GPU|NIC)\d{1,4}")
_FRAGMENT = re.compile(r"^[A-Z0-9,\-/ \t]+$")
# What a broken column line may go on with: names, titles, and the halves of either.
# Possessive, so that a long word cannot be tried in ever new halves.
_HEADER_WORD = re.compile(r"(?:(?:GPU|NIC)\d*+|\d++|CPU|NUMA|[Aa]?f{0,2}ini\w*+|[ni]{0,3}ty|ID)++")
_HEADER_MARK = re.compile(r"GPU|NIC|NUMA|ini|ty\b")
_AFFINITY_TAIL = re.compile(r"^[ \t]*(?:[0-9,\-]+|N?/?A)(?:[ \t]+(?:[0-9,\-]+|N/A)){0,2}[ \t]*$")
_DIGITS = re.compile(r"[0-9,\-]*")
# A wider bundle than any product has: the digits of a processor list are fused to it.
_WIDTH_LIMIT = 36
_LINE_LIMIT = 16_384


@dataclass(frozen=True, slots=True)
class Row:
    """A GPU's row: link cells (None where fused digits hide the width) and the rest as text."""

    gpu: int
    cells: tuple[Link | None, ...]
    rest: str
    last_line: bool = False

    @property
    def diagonal(self) -> int | None:
        """Index of the first X in the row, None when there is none."""
        places = (k for k, cell in enumerate(self.cells) if cell is not None and cell.kind == SELF)
        return next(places, None)


@dataclass(frozen=True, slots=True)
class Header:
    """Column names: GPU ids, then adapters, and how many affinity columns follow."""

    gpus: tuple[int, ...]
    adapters: tuple[str, ...]
    affinity_columns: int

    @property
    def links(self) -> int:
        """How many link cells a whole row has."""
        return len(self.gpus) + len(self.adapters)


def without_prefix(lines: Sequence[str]) -> list[str]:
    """Take a log's prefix (time, rank, pod) off every line that has the one of the rows."""
    hits = (_LABEL.match(line) for line in lines)
    befores = Counter(re.sub(r"\d+", "0", hit["before"]) for hit in hits if hit is not None)
    common = max(befores, key=lambda before: befores[before], default="")
    if not common.strip() or _COLUMN.search(common):
        return list(lines)
    # Digits differ from line to line; all else must be equal.
    prefix = re.compile(r"\d+".join(re.escape(part) for part in common.split("0")))
    return [line[hit.end() :] if (hit := prefix.match(line)) else line for line in lines]


def rows_of(lines: Sequence[str]) -> list[Row]:
    """Read every GPU row; the row on the last line that holds text is marked."""
    last = max((k for k, line in enumerate(lines) if line.strip()), default=-1)
    found = []
    for number, line in enumerate(lines):
        row = _row_of(line)
        if row is not None:
            found.append(replace(row, last_line=number == last))
    return found


def _row_of(line: str) -> Row | None:
    hit = _LABEL.match(line)
    if hit is None or _COLUMN.search(hit["before"]):
        return None
    row = _cells(int(hit["gpu"]), line[hit.end() :])
    prose = re.match(r"[A-Za-z_]", row.rest) is not None and not row.rest.startswith("N/A")
    return None if prose else row


def _cells(gpu: int, text: str) -> Row:
    cells: list[Link | None] = []
    place = 0
    while True:
        hit = _WORD.match(text, _blank_end(text, place))
        if hit is None:
            return Row(gpu, tuple(cells), text[place:])
        cell, place = _cell(text, hit)
        cells.append(cell)


def _blank_end(text: str, place: int) -> int:
    hit = _BLANK.match(text, place)
    return place if hit is None else hit.end()


def _cell(text: str, hit: re.Match[str]) -> tuple[Link | None, int]:
    """One cell and where it ends; None for a width that is fused with a processor list."""
    digits = hit[1]
    after = text[hit.end() : hit.end() + 1]
    clean = digits is None or (
        len(digits) <= 2 and 0 < int(digits) <= _WIDTH_LIMIT and after not in ("-", ",")
    )
    if clean:
        return parse_link(hit[0]), hit.end()
    fused = _DIGITS.match(text, hit.end())
    return None, hit.end() if fused is None else fused.end()


def header_of(lines: Sequence[str]) -> Header | None:
    """Find the column line: GPU names and adapter names, no link cell."""
    return next((_header(line) for line in lines if _is_header(line)), None)


def _is_header(line: str) -> bool:
    """A column line starts with a GPU's name and goes on with names or affinity titles."""
    if ":" in line or _LABEL.match(line):
        return False
    return re.match(r"[ \t]*GPU\d{1,4}(?:GPU\d|NIC\d|CPU|[ \t]+[A-Za-z]|[ \t]*$)", line) is not None


def _header(line: str) -> Header:
    titles = re.split(r"CPU[ \t]?Aff|NUMA", line, maxsplit=1)
    names = [name for token in titles[0].split() for name in _names(token)]
    gpus = tuple(int(name[3:]) for name in names if re.fullmatch(r"GPU\d{1,4}", name))
    adapters = tuple(name for name in names if not re.fullmatch(r"GPU\d{1,4}", name))
    return Header(gpus, adapters, line.count("Affini") + line.count("GPU NUMA"))


def _names(token: str) -> list[str]:
    """Take fused column names apart (`NIC6NIC7`, `NIC11CPU`)."""
    found: list[str] = _COLUMN.findall(token)
    return found if found and token.startswith(("GPU", "NIC")) else [token]


def join_header(lines: Sequence[str]) -> list[str]:
    """Put a column line that the terminal broke back together."""
    joined: list[str] = []
    for line in lines:
        if joined and _is_header(joined[-1]) and _continues_header(joined[-1], line):
            joined[-1] += line
        else:
            joined.append(line)
    return joined


def _continues_header(above: str, line: str) -> bool:
    bare = line.strip(" \t")
    if not bare or len(above) > _LINE_LIMIT or ":" in line or _LABEL.match(line):
        return False
    if _OTHER_LABEL.match(line):
        return False
    return _HEADER_MARK.search(bare) is not None and all(
        _HEADER_WORD.fullmatch(word) for word in bare.split()
    )


def join_rows(lines: Sequence[str], links: int | None) -> list[str]:
    """Put rows that the terminal broke back together; `links` is a whole row's cell count."""
    joined: list[str] = []
    open_row: Row | None = None
    for line in lines:
        glue = None if open_row is None else _glue(open_row, line, links)
        if glue is None or not joined or len(joined[-1]) > _LINE_LIMIT:
            joined.append(line)
        else:
            joined[-1] += glue + line
        open_row = _row_of(joined[-1])
    return joined


def _glue(above: Row, line: str, links: int | None) -> str | None:
    """What to put between a row and its continuation; None when the line is none."""
    if _LABEL.match(line) or _OTHER_LABEL.match(line) or not line.strip():
        return None
    whole = links is not None and len(above.cells) >= links
    if links is not None and not whole:
        return "" if _FRAGMENT.match(line) else None
    # A hard wrap keeps the blanks; with none left, the cells were parted at them.
    return ("" if above.rest.strip() else " ") if _AFFINITY_TAIL.match(line) else None
