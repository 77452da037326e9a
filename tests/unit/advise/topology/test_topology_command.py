"""`pagoda topology`: its shape for machines, exit statuses, several hosts, and the drawing."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from pagoda.advise.topology.launch import binding, engine_flags
from pagoda.advise.topology.nodes import compare
from pagoda.advise.topology.report import analyse
from pagoda.advise.topology.status import link_status, status_warnings
from pagoda.advise.topology.svg import draw
from pagoda.cli.main import app

KEYS = ["status", "reason", "gpus", "cliques", "numa", "asymmetric", "tp_groups", "env", "warnings"]


def run(*words: str, text: str = "") -> Result:
    """Run the command; returns its result."""
    return CliRunner().invoke(app, ["topology", *words], input=text)


@pytest.fixture
def saved(tmp_path: Path, switched: Any) -> Path:
    """The switched host's matrix in a file."""
    path = tmp_path / "topo.txt"
    path.write_text(switched.text())
    return path


def test_json_has_exactly_the_documented_keys(saved: Path) -> None:
    """Programs read these keys and no others, in this order."""
    result = run(str(saved), "--json")
    shape = json.loads(result.stdout)
    assert result.exit_code == 0
    assert list(shape) == KEYS
    assert shape["tp_groups"]["8"] == [list(range(8))]
    assert all(isinstance(value, str) for value in shape["env"].values())


def test_standard_input_is_read_for_a_dash(plain: Any) -> None:
    """- reads the matrix from standard input."""
    shape = json.loads(run("-", "--json", text=plain.text()).stdout)
    assert shape["gpus"] == list(range(8))


def test_a_refused_input_keeps_the_shape_and_fails(tmp_path: Path) -> None:
    """Status 1, the same keys, and the reason."""
    path = tmp_path / "amd.txt"
    path.write_text("GPU0\tGPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n")
    result = run(str(path), "--json")
    shape = json.loads(result.stdout)
    assert result.exit_code == 1
    assert list(shape) == KEYS
    assert shape["status"] == "refused"
    assert shape["tp_groups"] == {"2": [], "4": [], "8": []}


def test_people_see_the_matrix_the_groups_and_what_to_set(tmp_path: Path, mesh: Any) -> None:
    """Text output names groups, variables with reasons, binding, flags and the slowdown."""
    path = tmp_path / "mesh.txt"
    path.write_text(mesh.text())
    text = run(str(path)).stdout
    for word in (
        "TP 4:",
        "export CUDA_VISIBLE_DEVICES=",
        "# ",
        "numactl",
        "vllm:",
        "sglang:",
        "B_good",
    ):
        assert word in text


def test_a_missing_file_is_misuse(tmp_path: Path) -> None:
    """An unreadable file is status 2, named on standard error."""
    result = run(str(tmp_path / "none.txt"))
    assert result.exit_code == 2
    assert "none.txt" in result.stderr


def test_several_files_need_nodes(saved: Path) -> None:
    """Two files without --nodes are a mistake, not a merge."""
    assert run(str(saved), str(saved)).exit_code == 2


def fake_smi(directory: Path, text: str) -> None:
    """Put an nvidia-smi that prints `text` into a directory."""
    script = directory / "nvidia-smi"
    (directory / "answer").write_text(text)
    script.write_text(f'#!/bin/sh\n[ "$1" = topo ] && cat {directory}/answer\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def test_without_a_file_this_host_is_asked(
    tmp_path: Path, switched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live matrix is that of `nvidia-smi topo -m`."""
    fake_smi(tmp_path, switched.text())
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    shape = json.loads(run("--json").stdout)
    assert shape["gpus"] == list(range(8))


def test_a_host_without_nvidia_smi_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No nvidia-smi: the answer is unknown, in the shape of every other answer."""
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("--json")
    shape = json.loads(result.stdout)
    assert result.exit_code == 1
    assert list(shape) == KEYS
    assert shape["status"] == "unknown"
    assert "nvidia-smi is not installed" in shape["reason"]


def test_names_and_link_status_sharpen_the_answer(tmp_path: Path, plain: Any) -> None:
    """Product names and NVLink status come from files of their own."""
    matrix, names, status = tmp_path / "m", tmp_path / "n", tmp_path / "s"
    matrix.write_text(plain.text())
    names.write_text("".join(f"GPU {g}: NVIDIA A100-SXM4-80GB (UUID: x)\n" for g in range(8)))
    up = "".join(f"GPU {g}: A\n\t Link 0: 25 GB/s\n" for g in range(7))
    status.write_text(up + "GPU 7: A\n\t Link 0: <inactive>\n")
    words = json.loads(
        run(str(matrix), "--names", str(names), "--nvlink", str(status), "--json").stdout
    )["warnings"]
    assert any("none is up" in word for word in words)
    assert any("GPU7 has 0 NVLinks up" in word for word in words)


def test_links_that_are_down_everywhere_are_no_fault() -> None:
    """A bridged part leaves 6 of 18 links unused by design: no warning for that."""
    text = "".join(
        f"GPU {g}: NVIDIA H100 NVL\n\t Link 3: 25 GB/s\n\t Link 4: <inactive>\n" for g in range(4)
    )
    assert status_warnings(link_status(text), range(4)) == []
    assert link_status(text)[2].down == (4,)


def test_hosts_of_unlike_sizes_share_the_groups_of_the_poorest(switched: Any, make: Any) -> None:
    """Every host is cut down to the groups that all of them have."""
    small = make(range(4), other="NV18", places={g: ("0-7", "0") for g in range(4)})
    nodes = compare({"a": analyse(switched.text()), "b": analyse(small.text())}, interface="eth0")
    shape = nodes.as_json()
    assert nodes.status == "ok"
    assert [len(groups) for groups in shape["tp_groups"]["4"].values()] == [1, 1]
    assert shape["tp_groups"]["8"] == {"a": [], "b": []}
    assert shape["env"]["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert any("different numbers of GPUs" in text for text in nodes.warnings)


def test_equal_hosts_talk_over_the_adapters_they_share(switched: Any) -> None:
    """Adapters near the GPUs on every host are named for NCCL."""
    nodes = compare({"a": analyse(switched.text()), "b": analyse(switched.text())})
    assert nodes.env["NCCL_IB_HCA"] == "=mlx5_3,mlx5_7"
    assert any("--interface" in text for text in nodes.warnings)


def test_one_bad_host_spoils_the_set(switched: Any) -> None:
    """A host without groups is named, and nothing is proposed for the others."""
    nodes = compare({"a": analyse(switched.text()), "b": analyse("")})
    assert nodes.status == "unknown"
    assert nodes.reason.startswith("b:")
    assert nodes.groups == {}


def test_nodes_are_read_from_files(saved: Path, tmp_path: Path, plain: Any) -> None:
    """--nodes takes one file a host and answers with each host's shape."""
    other = tmp_path / "other.txt"
    other.write_text(plain.text())
    result = run("--nodes", str(saved), str(other), "--json")
    shape = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [list(node) for node in shape["nodes"].values()] == [KEYS, KEYS]
    assert any("differ between hosts" in text for text in shape["warnings"])


def test_the_drawing_shows_every_gpu_and_link(saved: Path, tmp_path: Path) -> None:
    """The SVG is well-formed: a circle a GPU, a line a pair, names escaped."""
    target = tmp_path / "host.svg"
    assert run(str(saved), "--svg", str(target)).exit_code == 0
    root = ElementTree.fromstring(target.read_text())
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}circle")) == 8
    assert len(root.findall(f"{space}line")) == 28


def test_the_drawing_of_a_refusal_is_its_reason() -> None:
    """Without a matrix the drawing holds the reason, escaped."""
    root = ElementTree.fromstring(draw(analyse("<no> & matrix")))
    assert "no matrix found" in "".join(root.itertext())


def test_binding_names_each_node_with_its_gpus(switched: Any) -> None:
    """A group on two sockets gets a prefix for each, by its own NUMA id."""
    matrix = analyse(switched.text()).matrix
    assert matrix is not None
    assert binding(matrix, range(8)) == [
        ([0, 1, 2, 3], "numactl --cpunodebind=0 --membind=0"),
        ([4, 5, 6, 7], "numactl --cpunodebind=1 --membind=1"),
    ]


def test_engines_get_flags_that_fit_the_links(plain: Any, switched: Any) -> None:
    """Custom all-reduce is off for more than two PCIe GPUs, and on over NVLink."""
    pcie, nvlink = (analyse(table.text()).matrix for table in (plain, switched))
    assert pcie is not None
    assert nvlink is not None
    slow = engine_flags(pcie, [0, 1, 2, 3], 2)
    fast = engine_flags(nvlink, [0, 1, 2, 3], 1)
    assert "--tensor-parallel-size 4" in slow["vllm"]
    assert "--tp-size 4" in slow["sglang"]
    assert "--disable-custom-all-reduce" in slow["vllm"]
    assert "--disable-custom-all-reduce" not in fast["vllm"]
    assert "--numa-node 0 0 0 0" in fast["sglang"]
