"""Fifty real matrices: parsed or refused, with the groups that INDEX.tsv judges best.

The table below is read off INDEX.tsv (nvlink_islands, best_tp, refuse_or_warn): NVLink
cliques of two and more, then groups of 2, 4 and 8. Where INDEX names groups "by NUMA" they
are written out; where it says "mixed" or "REFUSE" the list is empty. None: INDEX is silent.

Where this project disagrees with INDEX, or goes beyond it:

23, 25, 47  INDEX offers "4 by NUMA, mixed (warn)" as a second choice. NVLink pairs joined by
            PCIe are not homogeneous, so groups of 4 are refused, and given with --force.
31          INDEX names pairs alone. Its matrix is the one of 35, where INDEX accepts 4 by NUMA,
            so 4 is proposed here too; that NVLink is down is a warning (it needs the names).
39          Eight equal SYS links across sockets are "formally homogeneous" to INDEX; refused.
59          Uniform NV6 between A100-SXM4 is a warning, as INDEX asks, and only with names.
65, 67      vGPU and three models are refused as INDEX says, but only the names show it: from
            the matrix alone 65 looks like three good PIX peers.
73          INDEX allows 2 with a warning; SYS with one GPU's place unknown needs --force here.
91          INDEX places GPU3 by analogy; its row is cut before the affinity, so it is left out
            of `numa`.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from pagoda.advise.topology.groups import Grouper
from pagoda.advise.topology.names import gpu_names
from pagoda.advise.topology.report import Report, analyse

ALL8 = [list(range(8))]
HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7]]
FOUR = [[0, 1, 2, 3]]
TWO = [[0, 1], [2, 3]]

# file number: (cliques, groups of 2, groups of 4, groups of 8)
GROUPS: dict[str, tuple[Any, Any, Any, Any]] = {
    "01": (ALL8, PAIRS, HALVES, ALL8),
    "03": (ALL8, PAIRS, HALVES, ALL8),
    "05": (ALL8, PAIRS, HALVES, ALL8),
    "07": (ALL8, PAIRS, HALVES, ALL8),
    "09": (ALL8, PAIRS, HALVES, ALL8),
    "11": (ALL8, PAIRS, HALVES, ALL8),
    "13": (ALL8, PAIRS, HALVES, ALL8),
    "15": (HALVES, PAIRS, HALVES, []),
    "17": (HALVES, [[0, 2], [1, 3], [4, 6], [5, 7]], HALVES, []),
    "19": ([[0, 1, 3, 4, 5, 6, 7]], None, [[4, 5, 6, 7]], []),
    "21": (PAIRS, PAIRS, [], []),
    "23": ([[0, 3], [1, 2], [4, 5], [6, 7]], [[0, 3], [1, 2], [4, 5], [6, 7]], [], []),
    "25": (PAIRS, PAIRS, [], []),
    "27": ([], PAIRS, HALVES, []),
    "29": ([], None, None, ALL8),
    "31": ([], PAIRS, HALVES, []),
    "33": ([], PAIRS, HALVES, []),
    "35": ([], PAIRS, HALVES, []),
    "37": ([], None, HALVES, []),
    "39": ([], None, HALVES, []),
    "41": ([], [[0, 1], [2, 3], [5, 6], [7, 8]], [[0, 1, 2, 3], [5, 6, 7, 8]], []),
    "43": ([], [[0, 1], [2, 3], [4, 5]], FOUR, []),
    "45": ([[0, 1, 2, 3, 4]], [[1, 2], [3, 4]], [[1, 2, 3, 4]], []),
    "47": (TWO, TWO, [], []),
    "49": (TWO, TWO, [], []),
    "51": ([], TWO, [], []),
    "53": ([], TWO, [], []),
    "55": ([], [[1, 2]], [], []),
    "57": (FOUR, TWO, FOUR, []),
    "59": (FOUR, TWO, FOUR, []),
    "61": ([], TWO, FOUR, []),
    "63": ([], [[0, 1]], [], []),
    "65": ([], [], [], []),
    "67": ([], [], [], []),
    "69": ([[0, 1]], [[0, 1]], [], []),
    "71": ([[0, 1]], [[0, 1]], [], []),
    "73": ([], [], [], []),
    "75": ([], [[0, 1]], [], []),
    "77": ([], [], [], []),
    "85": (FOUR, [[0, 3], [1, 2]], FOUR, []),
    "87": (FOUR, None, FOUR, []),
    "89": (FOUR, None, FOUR, []),
    "91": (FOUR, TWO, FOUR, []),
    "93": ([], None, HALVES, []),
    "95": ([], [], [], []),
}
STATUS = dict.fromkeys(("65", "67", "73", "79", "81", "83", "99"), "refused") | {"97": "unknown"}
FILES = tuple(f"{number:02}" for number in range(1, 100, 2))
WORDS = {
    "79": "AMD",
    "81": "AMD",
    "83": "AMD",
    "97": "by design",
    "99": "MIG",
    "67": "RTX",
    "65": "vGPU",
}


def rows(shared: Path) -> dict[str, dict[str, str]]:
    """INDEX.tsv by file number."""
    with (shared / "INDEX.tsv").open(newline="") as file:
        return {row["file"][:2]: row for row in csv.DictReader(file, delimiter="\t")}


def text_of(shared: Path, number: str) -> str:
    """A matrix's text."""
    return next(shared.glob(f"{number}_*.txt")).read_text(errors="replace")


def named(shared: Path, number: str) -> Report:
    """The report with INDEX's product names, as --names would give them."""
    names = gpu_names([rows(shared)[number]["gpu_models"]])
    return analyse(text_of(shared, number), names=names)


def test_the_table_covers_every_file(shared: Path) -> None:
    """No real file is left without an expectation."""
    assert tuple(sorted(rows(shared))) == FILES
    assert set(GROUPS) | set(STATUS) == set(FILES)


@pytest.mark.parametrize("number", FILES)
def test_a_real_file_has_the_right_status(shared: Path, number: str) -> None:
    """Each of the fifty is parsed, or refused with a reason that names why."""
    report = named(shared, number)
    assert report.status == STATUS.get(number, "ok")
    assert WORDS.get(number, "") in report.reason


@pytest.mark.parametrize("number", sorted(GROUPS))
def test_a_real_file_has_the_right_groups(shared: Path, number: str) -> None:
    """Cliques and groups of 2, 4 and 8 are those that INDEX judges best."""
    shape = named(shared, number).as_json()
    cliques, *sizes = GROUPS[number]
    assert shape["cliques"] == cliques
    for size, expected in zip(("2", "4", "8"), sizes, strict=True):
        if expected is not None:
            assert shape["tp_groups"][size] == expected, size


NUMA = {
    "03": {"0": [0, 1], "1": [2, 3], "2": [4, 5], "3": [6, 7]},
    "09": {"3": [0, 1], "1": [2, 3], "7": [4, 5], "5": [6, 7]},
    "45": {"0": [0], "1": [1, 2, 3, 4]},
    "47": {"0-1": [0, 1, 2, 3]},
    "59": {},
    "67": {},
    "73": {"1": [1]},
    "85": {},
    "87": {"0": [0], "1": [1, 2, 3]},
    "89": {"3": [0], "1": [1], "7": [2], "5": [3]},
    "91": {"0,3-9,11-17": [0, 1], "1,19-25,27-33": [2]},
}


@pytest.mark.parametrize("number", sorted(NUMA))
def test_a_real_file_has_the_right_numa_groups(shared: Path, number: str) -> None:
    """Empty cells, ranges, lists and N/A are read as what they are."""
    assert named(shared, number).as_json()["numa"] == NUMA[number]


WARNINGS = {
    "15": "NV1/NV2 are mixed",
    "19": "matrix incomplete",
    "21": "GPU2–GPU3 has NV17",
    "31": "none is up",
    "51": "unlike one another",
    "59": "unexplained",
    "65": "vGPU",
    "67": "different GPU models",
    "71": "different NUMA nodes",
    "87": "no processor of this container",
    "91": "matrix incomplete",
}


@pytest.mark.parametrize("number", sorted(WARNINGS))
def test_a_real_file_raises_its_warning(shared: Path, number: str) -> None:
    """What INDEX asks to warn about is in a warning."""
    assert any(WARNINGS[number] in text for text in named(shared, number).warnings)


@pytest.mark.parametrize(
    "number", ["01", "03", "05", "07", "09", "11", "13", "57", "69", "95", "97"]
)
def test_a_healthy_real_file_is_quiet(shared: Path, number: str) -> None:
    """Nominal hosts, H800's NV8 and H100's NV6 among them, raise no warning."""
    assert not named(shared, number).warnings


@pytest.mark.parametrize("number", FILES)
def test_a_cut_real_file_gives_no_silently_wrong_group(shared: Path, number: str) -> None:
    """Cut anywhere, a file gives the same groups, or says that it is incomplete.

    Whatever is still proposed is homogeneous in the whole matrix, too.
    """
    text = text_of(shared, number)
    whole = analyse(text)
    for cut in range(7, len(text), max(len(text) // 12, 1)):
        report = analyse(text[:cut])
        shape = report.as_json()
        if report.status != "ok" or shape["tp_groups"] == whole.as_json()["tp_groups"]:
            continue
        assert any("incomplete" in word or "damaged" in word for word in report.warnings)
        assert whole.matrix is not None
        for groups in shape["tp_groups"].values():
            assert all(Grouper(whole.matrix).fault(group) is None for group in groups)
