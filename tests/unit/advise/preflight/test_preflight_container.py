"""Dockerfiles and compose files: limits, versions and what is baked in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.advise.preflight.check import Check
from pagoda.advise.preflight.container import container_checks
from pagoda.advise.preflight.engines import environment_file
from pagoda.advise.preflight.spec import size_of
from pagoda.machine.tree import HostTree

EMPTY = HostTree(Path(__file__).parent / "no-such-tree")

COMPOSE = """
services:
  engine:
    image: vllm/vllm-openai:v0.10.1-cuda12.8
    shm_size: 16gb
    ulimits: {memlock: -1}
    environment:
      - VLLM_LOGGING_LEVEL=INFO
    deploy: {resources: {reservations: {devices: [{capabilities: [gpu], device_ids: ["0"]}]}}}
  prometheus:
    image: prom/prometheus
"""

DOCKERFILE = """
ARG CUDA=12.8.1
FROM nvidia/cuda:${CUDA}-devel-ubuntu22.04 AS base
ENV LANG=C.UTF-8
FROM base
# a comment \\
RUN pip install torch==2.8.0+cu128 \\
    nvidia-nccl-cu12==2.27.3
CMD ["vllm", "serve"]
"""


def judged(text: str, tree: HostTree = EMPTY) -> dict[str, Check]:
    """Checks of a container file, by id."""
    return {check.id: check for check in container_checks(text, tree)}


def test_a_good_compose_file_passes() -> None:
    """Limits, version and environment are right; the service without a GPU is not judged."""
    checks = judged(COMPOSE)
    assert {c.id: c.reason for c in checks.values() if c.status in ("fail", "warn")} == {}
    assert "prometheus" not in " ".join(check.reason for check in checks.values())


COMPOSE_CASES = {
    "no shm": (("    shm_size: 16gb\n", ""), "container-shm", "fail"),
    "Docker's shm": (("16gb", "64m"), "container-shm", "fail"),
    "small shm": (("16gb", "512m"), "container-shm", "warn"),
    "the host's shm": (("shm_size: 16gb", "ipc: host"), "container-shm", "pass"),
    "no memlock": (("    ulimits: {memlock: -1}\n", ""), "container-memlock", "warn"),
    "small memlock": (
        ("memlock: -1", "memlock: {soft: 65536, hard: 65536}"),
        "container-memlock",
        "fail",
    ),
    "lock capability": (
        ("ulimits: {memlock: -1}", "cap_add: [IPC_LOCK]"),
        "container-memlock",
        "pass",
    ),
    "unpinned": ((":v0.10.1-cuda12.8", ""), "container-image", "warn"),
    "latest": (("v0.10.1-cuda12.8", "latest"), "container-image", "warn"),
    "old CUDA": (("cuda12.8", "cuda12.1"), "container-cuda", "fail"),
    "secret": (("VLLM_LOGGING_LEVEL=INFO", "HF_TOKEN=hf_abc"), "container-environment", "fail"),
    "secret from outside": (
        ("VLLM_LOGGING_LEVEL=INFO", "HF_TOKEN=$HF"),
        "container-environment",
        "pass",
    ),
    "peers off": (
        ("VLLM_LOGGING_LEVEL=INFO", "NCCL_P2P_DISABLE=1"),
        "container-environment",
        "warn",
    ),
}


@pytest.mark.parametrize(
    ("change", "name", "status"), COMPOSE_CASES.values(), ids=COMPOSE_CASES.keys()
)
def test_one_changed_line_of_compose_changes_its_check(
    change: tuple[str, str], name: str, status: str
) -> None:
    """The check about the line answers, and names the service."""
    assert change[0] in COMPOSE
    check = judged(COMPOSE.replace(*change))[name]
    assert check.status == status, check
    assert "engine" in check.reason


def test_a_file_without_engines_is_judged_all_the_same() -> None:
    """Where no service looks like an engine, every service is judged."""
    check = judged("services: {db: {image: 'postgres:17'}}")["container-shm"]
    assert check.status == "fail"
    assert "db:" in check.reason


def test_two_services_with_one_gpu_collide() -> None:
    """Two engines of a compose file are judged like two engines of a host."""
    second = (
        COMPOSE.split("services:\n")[1]
        .split("  prometheus", maxsplit=1)[0]
        .replace("engine:", "other:")
    )
    assert judged(COMPOSE + second)["engines-gpus"].status == "fail"
    apart = second.replace('["0"]', '["1"]')
    assert judged(COMPOSE + apart)["engines-gpus"].status == "pass"


def test_a_good_dockerfile_leaves_the_limits_to_the_run() -> None:
    """Versions come from the base image, through build arguments and stages; limits cannot."""
    checks = judged(DOCKERFILE)
    assert checks["container-cuda"].status == "pass"
    assert "12.8" in checks["container-cuda"].reason
    assert checks["container-nccl"].status == "pass"
    assert checks["container-memlock"].status == "unknown"
    assert "--ulimit memlock=-1" in checks["container-memlock"].remedy
    assert checks["container-environment"].status == "pass"


DOCKER_CASES = {
    "old NCCL": (("2.27.3", "2.18.3"), "container-nccl", "fail", "2.18.3"),
    "two CUDAs": (("+cu128", "+cu126"), "container-cuda", "warn", "12.6, 12.8"),
    "old CUDA": (("=12.8.1", "=12.1.0"), "container-cuda", "warn", "12.1"),
    "baked NCCL": (
        ("LANG=C", "NCCL_SOCKET_IFNAME=eth0 LANG=C"),
        "container-environment",
        "warn",
        "baked",
    ),
    "baked GPUs": (
        ("LANG=C", "CUDA_VISIBLE_DEVICES=0 A=C"),
        "container-environment",
        "warn",
        "baked",
    ),
    "old form": (
        ("LANG=C.UTF-8", "NCCL_DEBUG INFO"),
        "container-environment",
        "warn",
        "NCCL_DEBUG",
    ),
    "secret": (
        ("LANG=C", "OPENAI_API_KEY=sk-1 A=C"),
        "container-environment",
        "fail",
        "OPENAI_API_KEY",
    ),
}


@pytest.mark.parametrize(
    ("change", "name", "status", "word"), DOCKER_CASES.values(), ids=DOCKER_CASES
)
def test_one_changed_line_of_a_dockerfile_changes_its_check(
    change: tuple[str, str], name: str, status: str, word: str
) -> None:
    """The check about the line answers with the reason."""
    assert change[0] in DOCKERFILE
    check = judged(DOCKERFILE.replace(*change))[name]
    assert (check.status, word in check.reason) == (status, True), check


def test_a_stage_that_is_thrown_away_does_not_count() -> None:
    """Only the last stage and what it is built from are in the image."""
    text = "FROM nvidia/cuda:11.8.0 AS build\nENV NCCL_DEBUG=INFO\n" + DOCKERFILE
    checks = judged(text)
    assert "12.8" in checks["container-cuda"].reason
    assert checks["container-environment"].status == "pass"


def test_a_heredoc_is_not_read_as_instructions() -> None:
    """Lines of a script inside RUN <<EOF set nothing in the image."""
    text = "FROM nvidia/cuda:12.8.1\nRUN <<EOF\nENV NCCL_DEBUG=INFO\nEOF\nENV A=b\n"
    assert judged(text)["container-environment"].status == "pass"


def test_the_hosts_driver_is_compared(tmp_path: Path) -> None:
    """CUDA 13 in the container needs a driver of 580, whatever the file says."""
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX Kernel Module  570.10  x")
    tree = HostTree(tmp_path)
    assert judged(COMPOSE, tree)["container-cuda"].status == "pass"
    newer = judged(COMPOSE.replace("cuda12.8", "cuda13.0"), tree)["container-cuda"]
    assert newer.status == "fail"
    assert "570.10" in newer.reason


def test_the_hosts_nccl_is_compared(tmp_path: Path) -> None:
    """Ranks of one job need one NCCL: another one on the host is told."""
    packages = tmp_path / "pagoda/packages.txt"
    packages.parent.mkdir(parents=True)
    packages.write_text("nvidia-nccl-cu12==2.26.2")
    check = judged(DOCKERFILE, HostTree(tmp_path))["container-nccl"]
    assert check.status == "warn"
    assert "2.26.2" in check.reason


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no services"),
        ("apiVersion: v1\nkind: Pod\n", "Kubernetes"),
        ("services: [\n", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("services: 3\n", "no services"),
    ],
)
def test_other_files_are_refused_by_name(text: str, word: str) -> None:
    """What is neither a Dockerfile nor a compose file is one failed check that says what it is."""
    check = judged(text)["container-file"]
    assert check.status == "fail"
    assert word in check.reason


LINES = ["FROM a:1", "ENV X=1", "ENV 'x", "RUN <<E", "E", "services:", "  a:", "    shm_size: 1g"]
LINES += [
    "    image: vllm",
    "    environment: [A=1]",
    "    ulimits: 3",
    "&a",
    "*a",
    "\\",
    "\t",
    "# x",
    "FROM",
]


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.text(max_size=200), st.lists(st.sampled_from(LINES), max_size=12).map("\n".join))
)
def test_any_text_gives_checks(text: str) -> None:
    """No container file, however broken, raises or gives an empty answer."""
    checks = container_checks(text, EMPTY)
    assert checks
    assert all(check.reason for check in checks)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("16g", 16 << 30),
        ("64mb", 64 << 20),
        ("1KiB", 1024),
        (5, 5),
        ("x", None),
        (True, None),
        ("", None),
    ],
)
def test_sizes_are_read_as_docker_writes_them(value: Any, size: int | None) -> None:
    """Units are binary, with or without a trailing b."""
    assert size_of(value) == size


def test_an_engines_environment_is_read_in_three_forms() -> None:
    """Plain lines, `export` lines with quotes, and the kernel's zero-separated form."""
    expected = {"NCCL_DEBUG": "INFO", "A": "b c"}
    assert environment_file("NCCL_DEBUG=INFO\nA=b c\n# no\n") == expected
    assert environment_file("export NCCL_DEBUG=INFO\nexport A='b c'\n") == expected
    assert environment_file("NCCL_DEBUG=INFO\0A=b c\0") == expected
