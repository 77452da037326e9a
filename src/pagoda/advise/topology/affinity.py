"""Affinity columns: processors, NUMA nodes (a number, a range or a list), often empty.

An empty cell between tabs is seen; between blanks it is not, and splitting would move the
NUMA cell into the processors' place. Short rows are therefore read against the whole ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pagoda.advise.topology.matrix import Affinity
from pagoda.advise.topology.rows import Row

__all__ = ["affinities", "contradictions", "unreadable"]

_LIST = re.compile(r"\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*")


def affinities(rows: Sequence[Row], columns: int) -> dict[int, Affinity]:
    """Affinity by GPU; a GPU whose cells cannot be told apart has an empty one.

    `columns` is how many titles the header has, 0 when there is no header.
    """
    wanted = columns or max((len(row.rest.split()) for row in rows), default=0)
    whole = {row.gpu: _whole(row.rest, wanted) for row in rows}
    known = [near for near in whole.values() if near is not None]
    return {
        row.gpu: near if (near := whole[row.gpu]) is not None else _short(row.rest, known, wanted)
        for row in rows
    }


def unreadable(rows: Sequence[Row], near: Mapping[int, Affinity], columns: int) -> list[str]:
    """A sentence for each row whose affinity cells hold something, yet tell nothing."""
    if columns == 0:
        return (
            ["the column line has no affinity titles"] if any(r.rest.strip() for r in rows) else []
        )
    return [
        f"the affinity cells of GPU{row.gpu} are unreadable"
        for row in rows
        if near[row.gpu] == Affinity() and set(row.rest.split()) != {"N/A"}
    ]


def contradictions(near: Mapping[int, Affinity]) -> list[str]:
    """A sentence for each GPU that shares processors with an earlier one, but not the node.

    One of the two cells was damaged: a processor list belongs to one NUMA cell.
    """
    first: dict[str, tuple[int, str]] = {}
    lists = {place.cpus for place in near.values() if place.cpus is not None}
    found = [
        f"the NUMA cell of GPU{gpu} holds processors"
        for gpu, place in near.items()
        if place.cpus is None and place.numa in lists
    ]
    for gpu, place in near.items():
        if place.cpus is None or place.numa is None:
            continue
        other, numa = first.setdefault(place.cpus, (gpu, place.numa))
        if numa != place.numa:
            found.append(f"GPU{other} and GPU{gpu} share processors but not the NUMA cell")
    return found


def _whole(rest: str, wanted: int) -> Affinity | None:
    """Read a row that leaves no doubt: tabs between its cells, or a word for each column."""
    if "\t" in rest:
        return _tabbed(rest)
    words = rest.split()
    return _affinity(words[0], words[1]) if len(words) == wanted and wanted >= 2 else None


def _tabbed(rest: str) -> Affinity:
    # After the last link cell comes a tab, unless the processors are fused to that cell.
    cells = rest.strip(" ").split("\t")
    if not cells[0].strip():
        cells = cells[1:]
    cells += ["", ""]
    return _affinity(cells[0].strip(), cells[1].strip())


def _affinity(cpus: str, numa: str) -> Affinity:
    """Both cells, or neither where one of them holds what no such cell can."""
    if any(cell not in ("", "N/A") and not _LIST.fullmatch(cell) for cell in (cpus, numa)):
        return Affinity()
    return Affinity(_listed(cpus), _listed(numa))


def _listed(cell: str) -> str | None:
    return cell if _LIST.fullmatch(cell) else None


def _short(rest: str, known: Sequence[Affinity], wanted: int) -> Affinity:
    """Place the words of a row that has fewer than its columns."""
    words = [word for word in rest.split() if _LIST.fullmatch(word)]
    others = rest.split()
    if len(others) > max(wanted, 1) or not words:
        return Affinity()
    if len(words) >= 2:
        return Affinity(words[0], words[1])
    return _placed(words[0], known)


def _placed(word: str, known: Sequence[Affinity]) -> Affinity:
    """Give a lone word its column: where the same word stands elsewhere, or by its look."""
    if any(near.cpus == word for near in known):
        return Affinity(cpus=word)
    if any(near.numa == word for near in known):
        return Affinity(numa=word)
    looks_like_processors = "-" in word or "," in word
    processors_are_lists = any(near.cpus and not near.cpus.isdigit() for near in known)
    if looks_like_processors:
        return Affinity(cpus=word)
    return Affinity(numa=word) if processors_are_lists else Affinity()
