"""From text to a matrix, trusting a row only as far as its own X vouches for it.

The X on the diagonal is a check digit: a lost or doubled cell moves it. A row whose X is
out of place tells nothing; one with a wrong number of cells tells what stands up to its
X. What a row cannot tell is read from the other GPU's row, since links have no direction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from pagoda.advise.topology.affinity import affinities, contradictions, unreadable
from pagoda.advise.topology.clean import plain_lines, was_cut
from pagoda.advise.topology.foreign import Foreign, nvlink_status, recognise
from pagoda.advise.topology.links import SELF, Link
from pagoda.advise.topology.matrix import Matrix, Pair, pair_of
from pagoda.advise.topology.names import gpu_names
from pagoda.advise.topology.rows import (
    Header,
    Row,
    header_of,
    join_header,
    join_rows,
    rows_of,
    without_prefix,
)

__all__ = ["GPU_LIMIT", "parse"]

# More GPUs than any single host has; beyond it the input is not what it claims to be.
GPU_LIMIT = 128


def parse(text: str) -> Matrix | Foreign:
    """Read `nvidia-smi topo -m` output, however damaged; name what it is when it is none.

    Any text gives an answer; nothing is raised.
    """
    lines = plain_lines(text)
    foreign = recognise(lines)
    if foreign is not None:
        return foreign
    lines = join_header(without_prefix(lines))
    header = header_of(lines)
    rows = rows_of(join_rows(lines, None if header is None else header.links))
    if not rows:
        return _no_rows(text, lines, header)
    return _matrix(text, lines, header, rows)


def _no_rows(text: str, lines: Sequence[str], header: Header | None) -> Foreign:
    status = nvlink_status(lines)
    if status is not None:
        return status
    if not text.strip():
        return Foreign("unknown", "the input is empty; give the output of `nvidia-smi topo -m`")
    seen = "its column line but no GPU row" if header is not None else "no GPU row"
    return Foreign("unknown", f"no matrix found: {seen}; give the output of `nvidia-smi topo -m`")


def _matrix(
    text: str, lines: Sequence[str], header: Header | None, rows: Sequence[Row]
) -> Matrix | Foreign:
    unique = _unique(rows)
    if unique is None:
        return Foreign(
            "refused",
            "two different matrices stand in one input: give each host's own file, with --nodes",
        )
    gpus = _gpu_ids(header, unique)
    if isinstance(gpus, Foreign):
        return gpus
    expected = _row_length(header, unique)
    trusted, damage, short = _trusted(gpus, unique, expected)
    links, conflicts = _links(gpus, trusted)
    missing = [gpu for gpu in gpus if gpu not in {row.gpu for row in unique}]
    damage += [f"the row of GPU{gpu} is missing" for gpu in missing]
    if header is None:
        damage.append("the column line is missing: columns were counted from the rows")
    elif header.links != expected or header.gpus != gpus:
        named = f"{len(header.gpus)} GPUs and {len(header.adapters)} adapters"
        damage.append(f"the column line names {named}, rows have {expected} link cells")
    shown = [row for row in unique if row.gpu not in short]
    columns = 0 if header is None else header.affinity_columns
    near = affinities(shown, columns)
    damage += [] if header is None else unreadable(shown, near, columns)
    damage += contradictions(near)
    return Matrix(
        gpus=gpus,
        links=links,
        conflicts=conflicts,
        affinity=near,
        nics=_nics(lines, header, gpus, trusted),
        names=gpu_names(lines),
        damage=tuple(damage),
        cut=bool(short or missing) or (was_cut(text) and header is None),
    )


def _unique(rows: Sequence[Row]) -> list[Row] | None:
    """Drop repeats of a row; None when two rows of one GPU contradict each other."""
    by_gpu: dict[int, Row] = {}
    for row in rows:
        first = by_gpu.setdefault(row.gpu, row)
        if first.cells != row.cells:
            return None
    return list(by_gpu.values())


def _gpu_ids(header: Header | None, rows: Sequence[Row]) -> tuple[int, ...] | Foreign:
    """GPU ids in column order: the header's where its columns fit the X of the rows."""
    labels = [row.gpu for row in rows]
    named = set(header.gpus) if header is not None else set()
    if named - set(labels) and set(labels) - named:
        stray = min(set(labels) - named)
        return Foreign(
            "unknown",
            f"rows and columns name different GPUs (row GPU{stray} has no column): a name was "
            "damaged, capture `nvidia-smi topo -m` again",
        )
    for ids in ((list(header.gpus) if header is not None else []), _counted_ids(rows)):
        if ids and len(ids) <= GPU_LIMIT and set(labels) <= set(ids) and _fits(ids, rows):
            return tuple(ids)
    if header is not None and len(header.gpus) > GPU_LIMIT:
        return Foreign("refused", f"more than {GPU_LIMIT} GPUs in one host's matrix")
    return Foreign(
        "unknown",
        "rows and columns do not fit: the X of each row should stand in its GPU's own column; "
        "cells were lost or moved, capture `nvidia-smi topo -m` again",
    )


def _counted_ids(rows: Sequence[Row]) -> list[int]:
    """Without a column line: the rows' own ids, and one more for each NVLink column beyond.

    NVLink joins only GPUs, so a column that holds NV# is no adapter's.
    """
    labels = [row.gpu for row in rows]
    columns = [
        k for row in rows for k, c in enumerate(row.cells) if c is not None and c.kind == "NV"
    ]
    beyond = max(columns, default=-1) + 1 - len(labels)
    return labels + [max(labels) + 1 + k for k in range(beyond)]


def _fits(ids: Sequence[int], rows: Sequence[Row]) -> bool:
    """Most rows have their X in their own column, and no id comes twice."""
    good = sum(1 for row in rows if row.gpu in ids and row.diagonal == ids.index(row.gpu))
    return len(set(ids)) == len(ids) and good * 2 > len(rows)


def _row_length(header: Header | None, rows: Sequence[Row]) -> int:
    """How many link cells a whole row has: what most rows have, the header's where they tie."""
    counts = Counter(len(row.cells) for row in rows)
    top = max(counts.values())
    common = [length for length, times in counts.items() if times == top]
    if header is not None and header.links in common:
        return header.links
    return max(common)


def _trusted(
    gpus: Sequence[int], rows: Sequence[Row], expected: int
) -> tuple[dict[int, tuple[Link | None, ...]], list[str], set[int]]:
    """Cells to believe of each row, a sentence for each damaged row, and the rows that are cut."""
    trusted: dict[int, tuple[Link | None, ...]] = {}
    damage: list[str] = []
    cut: set[int] = set()
    for row in rows:
        place = gpus.index(row.gpu)
        if row.last_line and len(row.cells) < expected and row.diagonal in (None, place):
            # The last word may be half a word (NV1 of NV18), so it is not believed.
            trusted[row.gpu] = row.cells[:-1]
            damage.append(f"the row of GPU{row.gpu} is cut off")
            cut.add(row.gpu)
        elif row.diagonal != place:
            damage.append(f"the row of GPU{row.gpu} lost or gained a cell and is not used")
            cut.add(row.gpu)
        elif len(row.cells) != expected:
            trusted[row.gpu] = row.cells[: place + 1]
            damage.append(f"the row of GPU{row.gpu} has {len(row.cells)} cells of {expected}")
        else:
            trusted[row.gpu] = row.cells
    return trusted, damage, cut


def _links(
    gpus: Sequence[int], trusted: Mapping[int, Sequence[Link | None]]
) -> tuple[dict[Pair, Link], dict[Pair, tuple[Link, Link]]]:
    """Join both directions of each pair; pairs whose directions differ come second."""
    links: dict[Pair, Link] = {}
    conflicts: dict[Pair, tuple[Link, Link]] = {}
    for gpu, cells in trusted.items():
        for other, cell in zip(gpus, cells, strict=False):
            if other == gpu or cell is None or cell.kind == SELF:
                continue
            pair = pair_of(gpu, other)
            first = links.setdefault(pair, cell)
            if first != cell:
                conflicts[pair] = (first, cell)
    return {pair: link for pair, link in links.items() if pair not in conflicts}, conflicts


def _nics(
    lines: Sequence[str],
    header: Header | None,
    gpus: Sequence[int],
    trusted: Mapping[int, Sequence[Link | None]],
) -> dict[int, dict[str, Link]]:
    """Links from GPUs to adapters, under the legend's names; nothing where columns do not fit."""
    if header is None or not header.adapters:
        return {}
    legend = _legend(lines)
    columns = [legend.get(name, name) for name in header.adapters]
    found: dict[int, dict[str, Link]] = {}
    for gpu, cells in trusted.items():
        if len(cells) == len(gpus) + len(columns):
            near = zip(columns, cells[len(gpus) :], strict=True)
            found[gpu] = {name: cell for name, cell in near if cell is not None}
    return found


def _legend(lines: Sequence[str]) -> dict[str, str]:
    hits = (re.match(r"[ \t]*(NIC\d{1,4}):[ \t]*([\w.\-]{1,64})", line) for line in lines)
    return {hit[1]: hit[2] for hit in hits if hit is not None}
