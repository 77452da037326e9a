"""NCCL's variables against the host and against each other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.advise.preflight.container import container_checks
from pagoda.advise.preflight.nccl import Fabric, fabric_of, nccl_check
from pagoda.advise.topology.matrix import Matrix
from pagoda.advise.topology.parse import parse
from pagoda.machine.tree import HostTree


def matrix(link: str) -> Matrix:
    """Two GPUs joined by a link, as nvidia-smi prints it."""
    found = parse(
        f"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t{link}\t0-7\t0\n"
        f"GPU1\t{link}\t X \t0-7\t0\n"
    )
    assert isinstance(found, Matrix)
    return found


JOINED, APART = matrix("NV18"), matrix("PHB")
HOST = Fabric(matrix=JOINED, interfaces=("bond0", "eth0", "lo"), adapters=("mlx5_0", "mlx5_1"))


@pytest.mark.parametrize(
    ("variables", "status", "named"),
    [
        ({}, "pass", ""),
        ({"NCCL_DEBUG": "WARN"}, "pass", ""),
        ({"NCCL_P2P_DISABLE": "1"}, "warn", "NVLink unused"),
        ({"NCCL_P2P_DISABLE": "0"}, "pass", ""),
        ({"NCCL_P2P_LEVEL": "LOC"}, "warn", "NVLink unused"),
        ({"NCCL_P2P_LEVEL": "0"}, "warn", "NVLink unused"),
        ({"NCCL_P2P_LEVEL": "NVL"}, "pass", ""),
        ({"NCCL_P2P_LEVEL": "NVL", "CUDA_VISIBLE_DEVICES": "1"}, "pass", ""),
        ({"NCCL_P2P_LEVEL": "3"}, "pass", ""),
        ({"NCCL_P2P_LEVEL": "NVLINK"}, "warn", "no level"),
        ({"NCCL_P2P_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "1"}, "pass", ""),
        ({"NCCL_P2P_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "0,1"}, "warn", "NVLink unused"),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"}, "warn", "contradict"),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, "warn", "over the network"),
        ({"NCCL_IB_DISABLE": "1"}, "warn", "keeps mlx5_0, mlx5_1 unused"),
        ({"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5"}, "warn", "contradict"),
        ({"NCCL_IB_HCA": "mlx5"}, "pass", ""),
        ({"NCCL_IB_HCA": "=mlx5_1:1"}, "pass", ""),
        ({"NCCL_IB_HCA": "=mlx5"}, "warn", "selects no adapter"),
        ({"NCCL_IB_HCA": "^mlx5"}, "warn", "selects no adapter"),
        ({"NCCL_SOCKET_IFNAME": "eth"}, "pass", ""),
        ({"NCCL_SOCKET_IFNAME": "=eth0,bond0"}, "pass", ""),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo"}, "pass", ""),
        ({"NCCL_SOCKET_IFNAME": "ens"}, "fail", "selects no network interface"),
        ({"NCCL_SOCKET_IFNAME": "=eth"}, "fail", "selects no network interface"),
        ({"NCCL_SOCKET_IFNAME": "^bond,eth,lo"}, "fail", "selects no network interface"),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, "pass", ""),
        ({"GLOO_SOCKET_IFNAME": "eth"}, "fail", "GLOO_SOCKET_IFNAME"),
    ],
    ids=str,
)
def test_variables_on_a_host_with_nvlink_and_adapters(
    variables: dict[str, str], status: str, named: str
) -> None:
    """Each contradiction is named with the engine that has it, and comes with a remedy."""
    check = nccl_check({"one": {}, "two": variables}, HOST, name="x")
    assert check.status == status, check
    assert named in check.reason
    if status != "pass":
        assert "two: " in check.reason
        assert "one: " not in check.reason
        assert check.remedy


def test_a_level_that_no_pair_has_is_told() -> None:
    """NVL without NVLink switches direct copies off without saying so."""
    check = nccl_check(
        {"a": {"NCCL_P2P_LEVEL": "NVL"}, "b": {"NCCL_P2P_DISABLE": "1"}},
        Fabric(matrix=APART),
        name="x",
    )
    assert check.status == "warn"
    assert "a: NCCL_P2P_LEVEL=NVL" in check.reason
    assert "b: " not in check.reason


NAMES = st.sampled_from(["eth0", "eth1", "ens1f0", "bond0", "lo", "ib0"])


@given(
    st.lists(NAMES, min_size=1, unique=True),
    st.lists(st.sampled_from(["eth", "eth0", "en", "ib", "wlan", "lo"]), min_size=1, max_size=3),
    st.sampled_from(["", "^", "=", "^="]),
)
def test_interfaces_are_selected_as_nccls_guide_says(
    there: list[str], parts: list[str], mark: str
) -> None:
    """Prefixes, or whole names with `=`; with `^` all others. A check fails when none is left."""

    def matches(name: str) -> bool:
        return name in parts if "=" in mark else name.startswith(tuple(parts))

    left = [name for name in there if matches(name) != ("^" in mark)]
    variables = {"NCCL_SOCKET_IFNAME": mark + ",".join(parts)}
    check = nccl_check({"a": variables}, Fabric(interfaces=there), name="x")
    assert (check.status == "pass") is bool(left)


@given(
    st.dictionaries(
        st.sampled_from(
            "NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_SHM_DISABLE NCCL_IB_DISABLE NCCL_IB_HCA "
            "NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME CUDA_VISIBLE_DEVICES".split()
        ),
        st.text(max_size=6),
    )
)
def test_any_value_gives_an_answer(variables: dict[str, str]) -> None:
    """However odd: nothing is raised, and what is not known contradicts nothing about the host."""
    for fabric in (HOST, Fabric(), Fabric(matrix=APART, interfaces=(), adapters=())):
        nccl_check({"a": variables}, fabric, name="x")
    check = nccl_check({"a": variables}, Fabric(), name="x")
    assert "unused" not in check.reason
    assert "selects no" not in check.reason


def test_preflight_reads_this_environment_and_the_engines(judge: Any) -> None:
    """Of a captured tree: its own variables, its matrix and adapters, and each engine's."""
    topology = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"
    files = {"pagoda/commands/topology.txt": topology}
    assert judge(files)["nccl-settings"].status == "pass"
    engines = {"a": {"NCCL_IB_DISABLE": "1"}, "b": {}}
    files["pagoda/environ.txt"] = "NCCL_P2P_DISABLE=1"
    check = judge(files, engines=engines)["nccl-settings"]
    assert check.status == "warn"
    assert "here: NCCL_P2P_DISABLE=1" in check.reason
    assert "a: NCCL_IB_DISABLE=1 keeps mlx5_0" in check.reason


def test_all_variables_in_which_two_engines_differ_are_told(judge: Any) -> None:
    """Not the first of them alone."""
    engines = {
        "a": {"NCCL_IB_HCA": "mlx5_0", "NCCL_ALGO": "Ring"},
        "b": {"NCCL_IB_HCA": "mlx5_1", "NCCL_ALGO": "Tree", "NCCL_IB_DISABLE": "1"},
    }
    reason = judge(engines=engines)["engines-nccl"].reason
    assert all(f"{name} differs" in reason for name in ("NCCL_IB_HCA", "NCCL_ALGO"))
    assert "NCCL_IB_DISABLE differs: a has none, b has 1" in reason


def test_services_of_a_compose_file_are_judged(tmp_path: Any) -> None:
    """Each service by its name, against the links of this host, not against its interfaces."""
    (tmp_path / "pagoda" / "commands").mkdir(parents=True)
    topology = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"
    (tmp_path / "pagoda" / "commands" / "topology.txt").write_text(topology)
    text = """
services:
  vllm: {image: "vllm/vllm-openai:v0.32.0", environment: {NCCL_P2P_DISABLE: "1"}}
  sglang: {image: "lmsysorg/sglang:v0.5.23", environment: {NCCL_SOCKET_IFNAME: "ens9"}}
"""
    checks = {check.id: check for check in container_checks(text, HostTree(tmp_path))}
    settings = checks["container-nccl-settings"]
    assert settings.status == "warn"
    assert "vllm: NCCL_P2P_DISABLE=1 keeps NVLink unused" in settings.reason
    assert "sglang" not in settings.reason
    assert checks["engines-nccl"].status == "warn"


def test_a_host_without_gpus_contradicts_nothing_of_them() -> None:
    """This machine, whatever it is: facts are read, and nothing is raised."""
    fabric = fabric_of(HostTree())
    assert fabric.interfaces is None or "lo" in fabric.interfaces
