"""Groups are homogeneous, keep to sockets, and name the pair that breaks them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pagoda.advise.topology.links import NVLINK_GBS
from pagoda.advise.topology.report import Report, analyse
from pagoda.advise.topology.slowdown import group_gbs


def groups(report: Report, size: int) -> list[list[int]]:
    """Proposed groups of one size."""
    found: list[list[int]] = report.as_json()["tp_groups"][str(size)]
    return found


def spoiled(table: Any, **changes: str) -> Any:
    """A table with some links changed: `g2_g5="NV17"`."""
    pairs = {tuple(int(x[1:]) for x in name.split("_")): link for name, link in changes.items()}
    kept = {p: link for p, link in table.links.items() if p not in pairs and p[::-1] not in pairs}
    return type(table)(table.ids, kept | pairs, table.other, table.places, table.adapters)


def lonely(table: Any, gpu: int) -> Any:
    """A table whose GPU has lost every NVLink."""
    kept = {pair: link for pair, link in table.links.items() if gpu not in pair}
    return type(table)(table.ids, kept, "NODE", table.places, table.adapters)


def test_a_switched_host_is_one_group_of_eight(switched: Any) -> None:
    """All-to-all NVLink allows every size, in halves by socket."""
    report = analyse(switched.text())
    assert report.status == "ok"
    assert groups(report, 8) == [list(range(8))]
    assert groups(report, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert not report.warnings


def test_a_connected_mesh_is_not_a_clique(mesh: Any) -> None:
    """The cube mesh hangs together, yet only its quads are groups."""
    report = analyse(mesh.text())
    shape = report.as_json()
    assert shape["cliques"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups(report, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups(report, 8) == []
    assert len(shape["asymmetric"]) == 12
    assert any("tensor-parallel 8 refused" in text and "SYS" in text for text in report.warnings)


def test_pairs_of_a_mesh_take_the_widest_links(mesh: Any) -> None:
    """Every pair is NV2 where the mesh allows a perfect matching of them."""
    for left, right in groups(analyse(mesh.text()), 2):
        assert mesh.cell(left, right) == "NV2"


def test_pcie_groups_stay_inside_a_socket(plain: Any) -> None:
    """Without NVLink a group of four is a socket, and eight are refused."""
    report = analyse(plain.text())
    assert groups(report, 2) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups(report, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups(report, 8) == []


def test_equal_links_do_not_hide_the_sockets(make: Any) -> None:
    """Where all links are SYS only the affinity tells which GPUs belong together."""
    places = {g: ("0-7", "0") if g in (0, 2, 5, 7) else ("8-15", "1") for g in range(8)}
    report = analyse(make(range(8), places=places).text())
    assert groups(report, 4) == [[0, 2, 5, 7], [1, 3, 4, 6]]
    assert groups(report, 8) == []


def test_sys_without_affinity_is_refused(make: Any) -> None:
    """SYS pairs of unknown place may cross sockets, so no group is made of them."""
    report = analyse(make(range(2)).text())
    assert report.status == "refused"
    assert groups(report, 2) == []
    assert "GPU0–GPU1" in report.reason


def test_a_narrow_pair_breaks_the_group_that_holds_it(switched: Any) -> None:
    """One NV17 among NV18 slows all eight; groups of four avoid the pair."""
    report = analyse(spoiled(switched, g2_g3="NV17").text())
    assert report.as_json()["asymmetric"] == [[2, 3]]
    assert groups(report, 8) == []
    assert len(groups(report, 4)) == 2
    assert all(not {2, 3} <= set(group) for group in groups(report, 4))
    assert any("GPU2–GPU3 has only NV17" in text for text in report.warnings)


def test_a_gpu_that_lost_its_links_is_in_no_group(switched: Any) -> None:
    """GPU2 without NVLink among seven with it is named, and left out of every group."""
    report = analyse(lonely(switched, 2).text())
    shape = report.as_json()
    assert shape["cliques"] == [[0, 1, 3, 4, 5, 6, 7]]
    assert all(2 in pair for pair in shape["asymmetric"])
    assert len(shape["asymmetric"]) == 7
    assert groups(report, 8) == []
    assert groups(report, 4) == [[4, 5, 6, 7]]
    assert all(2 not in group for group in groups(report, 2))
    assert any("GPU2 has no NVLink" in text for text in report.warnings)


def test_two_lost_gpus_are_no_pair_for_each_other(switched: Any) -> None:
    """Two GPUs without NVLink would be alike, but they are faults, not a group."""
    report = analyse(lonely(lonely(switched, 2), 3).text())
    assert all(not {2, 3} & set(group) for group in groups(report, 2))
    assert len(groups(report, 2)) == 3


def test_a_gpu_with_nvlink_elsewhere_is_not_paired_over_pcie(make: Any) -> None:
    """In a chain of bridges only one pair is left: the rest would waste a link."""
    table = make(
        range(4), {(0, 1): "NV4", (1, 2): "NV4"}, "NODE", {g: ("0-7", "0") for g in range(4)}
    )
    assert groups(analyse(table.text()), 2) == [[0, 1]]


def test_links_that_no_row_tells_make_the_answer_unknown(plain: Any) -> None:
    """Without the rows of four GPUs their pairs are not known, and nothing is proposed."""
    text = "\n".join(plain.lines()[:5]) + "\n"
    report = analyse(text)
    assert report.status == "unknown"
    assert "GPU4–GPU5" in report.reason
    assert set(map(str, report.as_json()["tp_groups"].values())) == {"[]"}


def test_bridged_pairs_are_not_paired_across(make: Any) -> None:
    """Bridges differ from socket to socket: pairs follow the links, not the numbers."""
    links = {(0, 3): "NV4", (1, 2): "NV4", (4, 5): "NV4", (6, 7): "NV4"}
    near = {(0, 1): "NODE", (0, 2): "NODE", (1, 3): "PIX", (2, 3): "PIX"}
    table = make(range(8), links | near, "SYS", {g: ("0-7", str(g // 4)) for g in range(8)})
    report = analyse(table.text())
    assert groups(report, 2) == [[0, 3], [1, 2], [4, 5], [6, 7]]
    assert groups(report, 4) == []
    assert not report.as_json()["asymmetric"]


def test_contradicting_cells_are_never_grouped(switched: Any) -> None:
    """A pair whose two cells differ is in no group, and is listed."""
    lines = switched.text().split("\n")
    lines[1] = lines[1].replace("NV18", "SYS", 1)
    report = analyse("\n".join(lines))
    assert [0, 1] in report.as_json()["asymmetric"]
    assert all(not {0, 1} <= set(g) for size in (2, 4, 8) for g in groups(report, size))


def test_unlike_models_are_refused_by_name(plain: Any) -> None:
    """A rank on a slower part holds up all: models may not be mixed."""
    names = {g: "NVIDIA L4" if g == 1 else "NVIDIA A10" for g in range(8)}
    report = analyse(plain.text(), names=names)
    assert all(1 not in group for size in (2, 4) for group in groups(report, size))
    assert any("different GPU models" in text for text in report.warnings)


def test_virtual_gpus_are_refused(plain: Any) -> None:
    """vGPU profiles have no peer copies, whatever the matrix shows."""
    report = analyse(plain.text(), names=dict.fromkeys(range(8), "GRID A100-40C"))
    assert report.status == "refused"
    assert "vGPU" in report.reason


def test_a_board_without_its_nvlinks_is_suspicious(plain: Any) -> None:
    """An SXM part that shows PCIe links only has a fabric that is down."""
    report = analyse(plain.text(), names=dict.fromkeys(range(8), "NVIDIA A100-SXM4-80GB"))
    assert any("none is up" in text for text in report.warnings)
    quiet = analyse(plain.text(), names=dict.fromkeys(range(8), "NVIDIA A10"))
    assert not any("none is up" in text for text in quiet.warnings)


def test_nominal_widths_of_a_part_raise_no_warning(make: Any) -> None:
    """Six links a pair are how a four-GPU H100 board is built, not damage."""
    table = make(range(4), other="NV6", places={g: ("0-7", "0") for g in range(4)})
    report = analyse(table.text(), names=dict.fromkeys(range(4), "NVIDIA H100 80GB HBM3"))
    assert groups(report, 4) == [[0, 1, 2, 3]]
    assert not report.warnings


def test_force_gives_refused_groups_with_the_reason(mesh: Any) -> None:
    """--force proposes eight, and keeps saying which pair breaks them."""
    report = analyse(mesh.text(), force=True)
    assert groups(report, 8) == [list(range(8))]
    assert any("tensor-parallel 8 forced" in text for text in report.warnings)


def test_a_forced_ring_crosses_quads_over_nvlink(mesh: Any) -> None:
    """The ring of eight uses no SYS hop, and leaves a quad exactly twice."""
    report = analyse(mesh.text(), force=True)
    ring = [int(gpu) for gpu in report.as_json()["env"]["CUDA_VISIBLE_DEVICES"].split(",")]
    hops = list(zip(ring, [*ring[1:], ring[0]], strict=True))
    assert sorted(ring) == list(range(8))
    assert all(mesh.cell(*hop).startswith("NV") for hop in hops)
    assert sum((left < 4) != (right < 4) for left, right in hops) == 2


def test_the_ring_keeps_pairs_below_their_switch(make: Any) -> None:
    """With PIX pairs (0,2) and (1,3) the ring crosses the host bridge only twice."""
    links = {(0, 2): "PIX", (1, 3): "PIX"}
    table = make(range(4), links, "NODE", {g: ("0-7", "0") for g in range(4)})
    ring = analyse(table.text()).as_json()["env"]["CUDA_VISIBLE_DEVICES"].split(",")
    hops = list(zip(ring, [*ring[1:], ring[0]], strict=True))
    assert sum(table.cell(int(a), int(b)) == "NODE" for a, b in hops) == 2


def test_the_slowdown_is_the_formula_it_prints(mesh: Any) -> None:
    """0.8 + 0.2 × B_good / B_bad, with the numbers that are shown."""
    bad = analyse(mesh.text()).slower[8]
    assert bad.factor == pytest.approx(0.8 + 0.2 * bad.good_gbs / bad.bad_gbs)
    assert f"{bad.factor:.2f}" in bad.formula
    assert "20%" in bad.formula


def test_adapters_near_the_group_are_named(switched: Any) -> None:
    """NCCL_IB_HCA has the adapters below the group's switches under their own names."""
    report = analyse(switched.text(), sizes=[4])
    env = report.as_json()["env"]
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert env["NCCL_IB_HCA"] == "=mlx5_3"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert all(setting.why for setting in report.settings)


def test_peer_copies_are_told_where_the_links_decide_it(
    switched: Any, plain: Any, make: Any
) -> None:
    """NVL over NVLink, PXB below switches; through the processor NCCL decides itself."""
    below = make(range(4), {(0, 1): "PIX"}, "PXB", {g: ("0-7", "0") for g in range(4)})
    levels = [analyse(t.text()).as_json()["env"].get("NCCL_P2P_LEVEL") for t in (switched, below)]
    assert levels == ["NVL", "PXB"]
    assert "NCCL_P2P_LEVEL" not in analyse(plain.text()).as_json()["env"]


def test_a_switch_gives_a_member_all_its_links_once(switched: Any, make: Any) -> None:
    """Behind a switch every pair shows all 18 links; on a direct board they add up to 18."""
    direct = make(range(4), other="NV6", places={g: ("0-7", "0") for g in range(4)})
    behind, board = analyse(switched.text()).matrix, analyse(direct.text()).matrix
    assert behind is not None
    assert board is not None
    assert group_gbs(behind, range(8)) == group_gbs(behind, [0, 1]) == 18 * NVLINK_GBS
    assert group_gbs(board, range(4)) == 18 * NVLINK_GBS
    assert group_gbs(board, [0, 1]) == 6 * NVLINK_GBS


def test_one_gpu_has_nothing_to_group(make: Any) -> None:
    """A single GPU is fine, and no group is proposed."""
    report = analyse(make([0], places={0: ("0-19", "0")}).text())
    assert report.status == "ok"
    assert report.as_json()["tp_groups"] == {"2": [], "4": [], "8": []}


def test_an_odd_size_is_proposed_with_a_word_about_heads(make: Any) -> None:
    """Five GPUs may be alike, but five rarely divide a model's heads."""
    report = analyse(make(range(5), other="NV18").text(), sizes=[5])
    assert groups(report, 5) == [[0, 1, 2, 3, 4]]
    assert any("divisible" in text for text in report.warnings)


def test_sixteen_gpus_are_grouped_without_trying_all_partitions(make: Any) -> None:
    """Beyond ten GPUs groups are grown; they are disjoint and alike all the same."""
    links = all_links(16)
    table = make(range(16), links, "SYS", {g: ("0-7", str(g // 8)) for g in range(16)})
    report = analyse(table.text())
    assert [len(groups(report, size)) for size in (2, 4, 8)] == [8, 4, 2]
    for size in (2, 4, 8):
        members = [gpu for group in groups(report, size) for gpu in group]
        assert len(set(members)) == len(members)
        for group in groups(report, size):
            assert {table.cell(a, b) for a, b in itertools.combinations(group, 2)} == {"NV6"}


def all_links(count: int) -> dict[tuple[int, int], str]:
    """NV6 inside each half, as two baseboards that are not joined."""
    half = count // 2
    return {
        pair: "NV6"
        for pair in itertools.combinations(range(count), 2)
        if (pair[0] < half) == (pair[1] < half)
    }
