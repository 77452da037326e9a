"""The parser reads damaged matrices as far as they can be trusted, and says what it cannot."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pagoda.advise.topology.foreign import Foreign
from pagoda.advise.topology.matrix import Matrix
from pagoda.advise.topology.parse import GPU_LIMIT, parse


def read(text: str) -> Matrix:
    """Parse text that is a matrix."""
    matrix = parse(text)
    assert isinstance(matrix, Matrix), matrix
    return matrix


def names(matrix: Matrix) -> dict[tuple[int, int], str]:
    """Link names by pair."""
    return {pair: link.name for pair, link in matrix.links.items()}


def expected(table: Any) -> dict[tuple[int, int], str]:
    """What a table's links are, pair by pair."""
    ids = sorted(table.ids)
    return {(a, b): table.cell(a, b) for k, a in enumerate(ids) for b in ids[k + 1 :]}


def test_a_clean_matrix_is_read_cell_by_cell(table: Any) -> None:
    """Every pair, every NUMA node and nothing else comes out of an undamaged table."""
    matrix = read(table.text())
    assert names(matrix) == expected(table)
    assert matrix.numa() == {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}
    assert not matrix.damage
    assert not matrix.cut


SAME = {
    "tabs become eight blanks": lambda text: text.replace("\t", " " * 8),
    "tabs become one blank": lambda text: text.replace("\t", " "),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "colour codes": lambda text: re.sub(r"(NV\d+|SYS|GPU\d)", "\x1b[32m\\1\x1b[0m", text),
    "colour residue": lambda text: re.sub(r"(NV\d+|SYS|GPU\d)", "[32m\\1[0m", text),
    "a quoted mail": lambda text: re.sub(r"(?m)^", "> ", text),
    "a Markdown table": lambda text: text.replace("\t", " | "),
    "a log's prefix": lambda text: "".join(
        f"2026-01-02 03:04:{k:02d} [rank3]: {line}\n" for k, line in enumerate(text.splitlines())
    ),
    "a fused column line": lambda text: text.replace("NIC1\tCPU", "NIC1CPU"),
    "text above and below": lambda text: f"$ nvidia-smi topo -m\n{text}done\n",
    "other text between the rows": lambda text: text.replace("\nGPU5", "\nwarning: late\nGPU5"),
    "rows twice": lambda text: text + text,
}


@pytest.mark.parametrize("mutation", SAME.values(), ids=SAME.keys())
def test_harmless_damage_changes_nothing(table: Any, mutation: Any) -> None:
    """Layout, colour and bystanders carry no information, so they may not change any."""
    matrix = read(mutation(table.text()))
    assert names(matrix) == expected(table)
    assert matrix.numa() == {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}


def test_without_tabs_the_links_are_still_known(table: Any) -> None:
    """With every tab gone NV18 and the processors fuse; the other row of the pair tells."""
    matrix = read(table.text().replace("\t", ""))
    assert names(matrix) == expected(table)


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_lines_that_a_terminal_broke_are_joined(table: Any, width: int) -> None:
    """A hard wrap, even inside a word, is undone for the column line and for rows."""
    wide = table.text().expandtabs()
    broken = "\n".join(
        line[k : k + width] for line in wide.split("\n") for k in range(0, max(len(line), 1), width)
    )
    matrix = read(broken)
    assert names(matrix) == expected(table)


def test_fused_cells_come_apart_by_vocabulary(switched: Any) -> None:
    """SYSPIX, PIXSYS0-31 and the like are two cells each."""
    text = switched.text().replace("SYS\tSYS\t0-31", "SYSSYS0-31").replace("PIX\tSYS", "PIXSYS")
    matrix = read(text)
    assert names(matrix) == expected(switched)
    assert matrix.nics[1]["mlx5_3"].name == "PIX"
    assert matrix.affinity[0].cpus == "0-31,64-95"


def test_an_empty_processor_cell_does_not_take_the_numa_cell(make: Any) -> None:
    """Splitting at blanks would move node 1 into the processors' column."""
    places = {0: ("44-51,148-155", "0"), 1: ("", "1"), 2: ("", "1")}
    table = make(range(3), other="NV18", places=places)
    for text in (table.text(), table.text().expandtabs(), table.text().replace("\t", " ")):
        matrix = read(text)
        assert matrix.numa() == {"0": [0], "1": [1, 2]}
        assert matrix.affinity[1].cpus is None


def test_numa_cells_may_be_lists(make: Any) -> None:
    """GPU memory that is a NUMA node of its own makes the cell a list, kept as it is."""
    places = {0: ("0-71", "0,3-9,11-17"), 1: ("72-143", "1,19-25")}
    matrix = read(make(range(2), other="NV18", places=places).text())
    assert matrix.numa() == {"0,3-9,11-17": [0], "1,19-25": [1]}
    assert matrix.apart(0, 1)


def test_a_lone_numa_list_is_known_from_the_other_rows(make: Any) -> None:
    """0-1 with an empty processor cell is the NUMA list that the other GPU has, too."""
    table = make(range(2), other="NV12", places={0: ("0-253", "0-1"), 1: ("", "0-1")})
    matrix = read(table.text().expandtabs())
    assert matrix.numa() == {"0-1": [0, 1]}
    assert matrix.affinity[1].cpus is None


def test_ids_need_not_count_from_zero(make: Any) -> None:
    """Columns belong to the ids of the column line, in its order."""
    links = {(3, 5): "NV4", (3, 12): "SYS", (5, 12): "PXB"}
    matrix = read(make([3, 5, 12], links).text())
    assert matrix.gpus == (3, 5, 12)
    assert names(matrix) == {(3, 5): "NV4", (3, 12): "SYS", (5, 12): "PXB"}


def test_two_directions_that_disagree_are_a_conflict(switched: Any) -> None:
    """A link has no direction: neither of two contradicting cells is believed."""
    lines = switched.text().split("\n")
    lines[3] = lines[3].replace("NV18", "NODE", 1)
    matrix = read("\n".join(lines))
    assert set(matrix.conflicts) == {(0, 2)}
    assert matrix.link(0, 2) is None
    assert matrix.link(0, 1) is not None


def test_a_row_whose_x_moved_is_not_believed(mesh: Any) -> None:
    """A lost cell shifts all that follow; the X out of place gives it away."""
    lines = mesh.text().split("\n")
    lines[6] = lines[6].replace("\tSYS", "", 1)
    matrix = read("\n".join(lines))
    assert names(matrix) == expected(mesh)
    assert any("GPU5" in sentence for sentence in matrix.damage)


def test_a_cell_lost_behind_the_x_is_not_filled_from_the_next_column(switched: Any) -> None:
    """Behind the X only the count of cells can tell that one is gone."""
    lines = switched.text().split("\n")
    assert lines[2].startswith("GPU1")
    lines[2] = lines[2][::-1].replace("81VN\t", "", 1)[::-1]
    matrix = read("\n".join(lines))
    assert names(matrix) == expected(switched)
    assert any("GPU1" in sentence for sentence in matrix.damage)


def test_the_last_word_of_a_cut_row_is_not_believed(mesh: Any) -> None:
    """NV1 may be the beginning of NV12: a row that ends early loses its last word."""
    text = mesh.text()
    start = text.index("\nGPU7") + 1
    cut = text[: text.index("SYS", start) + 2]
    matrix = read(cut)
    assert matrix.cut
    assert names(matrix).items() <= expected(mesh).items()


def test_half_a_width_is_no_width(switched: Any) -> None:
    """A row that ends in NV1 of NV18 does not contradict the other rows."""
    text = switched.text()
    start = text.index("\nGPU7") + 1
    matrix = read(text[: text.index("NV18", start + 20) + 3])
    assert matrix.cut
    assert not matrix.conflicts
    assert names(matrix) == expected(switched)


def test_a_missing_column_line_is_made_up_for_by_nvlink_columns(switched: Any) -> None:
    """NVLink joins GPUs alone, so a column with NV# is a GPU even when its row is missing."""
    lines = switched.lines()[1:-1]
    matrix = read("\n".join(lines) + "\n")
    assert matrix.gpus == tuple(range(8))
    assert matrix.cut
    assert matrix.link(6, 7) is not None


def test_a_damaged_row_name_is_not_taken_for_another_gpu(switched: Any) -> None:
    """Found by fuzzing: GPU3 read as GPU33 was grouped under a name that no GPU has."""
    answer = parse(switched.text().replace("\nGPU3\t", "\nGPU33\t"))
    assert isinstance(answer, Foreign)
    assert answer.status == "unknown"
    assert "GPU33" in answer.reason


def test_columns_that_are_not_named_are_told(switched: Any) -> None:
    """Found by fuzzing: with the end of the column line gone, GPUs went missing silently."""
    lines = switched.text().split("\n")
    lines[0] = "\t" + "\t".join(f"GPU{gpu}" for gpu in range(4))
    matrix = read("\n".join(lines[:5]) + "\n")
    assert any("names 4 GPUs" in sentence for sentence in matrix.damage)


def test_a_damaged_numa_cell_is_told(make: Any) -> None:
    """Found by fuzzing: node 0 read as 10 tore a GPU from its socket without a word."""
    places = {gpu: ("0-15", "10" if gpu == 2 else "0") for gpu in range(4)}
    matrix = read(make(range(4), places=places).text())
    assert any("GPU0 and GPU2 share processors" in sentence for sentence in matrix.damage)


def test_half_a_processor_list_is_not_believed(switched: Any) -> None:
    """A tab inside the list makes two cells of it, and the second is no NUMA cell."""
    matrix = read(switched.text().replace("0-31,64-95", "0-31,64\t-95", 1))
    assert matrix.affinity[0].place is None
    assert any("GPU0 are unreadable" in sentence for sentence in matrix.damage)


def test_two_hosts_in_one_input_are_refused(switched: Any, mesh: Any) -> None:
    """Rows of two matrices must not be mixed into a third that exists nowhere."""
    answer = parse(switched.text() + mesh.text())
    assert isinstance(answer, Foreign)
    assert answer.status == "refused"
    assert "--nodes" in answer.reason


def test_more_gpus_than_a_host_has_are_refused(make: Any) -> None:
    """An input of hundreds of GPUs is no host, and would take hours to group."""
    answer = parse(make(range(GPU_LIMIT + 1), other="SYS").text())
    assert isinstance(answer, Foreign)
    assert answer.status == "refused"


FOREIGN = {
    "AMD link types": ("GPU0\tGPU1\nGPU0   0   XGMI\nGPU1   XGMI   0\n", "refused", "AMD"),
    "AMD weights": ("       GPU0  GPU1\nGPU0   0     15\nGPU1   15    0\n", "refused", "AMD"),
    "another vendor": ("     NPU0  NPU1\nNPU0  X    HCCS\nNPU1  HCCS  X\n", "refused", "vendor"),
    "MIG of two sizes": (
        "|  0  MIG 1g.10gb   19  9  2:1 |\n|  0  MIG 3g.40gb   9  2  4:4 |\n",
        "refused",
        "unequal size",
    ),
    "MIG of one size": ("  MIG 2g.20gb  Device 0: (UUID: MIG-1)\n", "refused", "peer"),
    "NVLink status": ("GPU 0 has nvlinks inactive:  Link 4: Inactive\n", "unknown", "by design"),
    "nothing": ("", "unknown", "empty"),
    "prose": ("all GPUs are fine\n", "unknown", "no GPU row"),
    "a column line alone": ("\tGPU0\tGPU1\tCPU Affinity\n", "unknown", "no GPU row"),
    "prose about a GPU": ("GPU0 SYSTEM error\nGPU1 NODE_LOST\n", "unknown", "no GPU row"),
    "a kernel log": ("GPU0 Xid 79, fell off the bus\n", "unknown", "no GPU row"),
}


@pytest.mark.parametrize(("text", "status", "word"), FOREIGN.values(), ids=FOREIGN.keys())
def test_other_inputs_are_named(text: str, status: str, word: str) -> None:
    """What is no NVIDIA matrix is refused by what it is."""
    answer = parse(text)
    assert isinstance(answer, Foreign)
    assert answer.status == status
    assert word in answer.reason
