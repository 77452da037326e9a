"""`pagoda preflight`: its shape for machines, exit statuses, captured trees and container files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pagoda.cli.main import app
from pagoda.machine.collect import unpack_tar

KEYS = ["id", "status", "reason", "confirm", "remedy"]


def run(*words: str) -> Result:
    """Run the command; returns its result."""
    return CliRunner().invoke(app, ["preflight", *words])


def statuses(result: Result) -> dict[str, str]:
    """Status by check id, after checking the documented shape."""
    shape = json.loads(result.stdout)
    assert list(shape) == ["checks"]
    assert all(list(check) == KEYS for check in shape["checks"])
    assert {c["status"] for c in shape["checks"]} <= {"pass", "warn", "fail", "unknown"}
    return {check["id"]: check["status"] for check in shape["checks"]}


def tree(root: Path, lock: str) -> Path:
    """A captured tree with a memory-lock limit."""
    limits = root / "proc/self/limits"
    limits.parent.mkdir(parents=True)
    limits.write_text(f"Max locked memory   {lock}   {lock}   bytes\n")
    return root


def test_a_failed_check_is_status_one(tmp_path: Path) -> None:
    """64 KiB of locked memory fail; the shape is the documented one."""
    result = run("--root", str(tree(tmp_path, "65536")), "--json")
    assert result.exit_code == 1
    assert statuses(result)["memlock"] == "fail"


def test_no_failed_check_is_status_zero(tmp_path: Path) -> None:
    """Unknown facts do not fail a host."""
    result = run("--root", str(tree(tmp_path, "unlimited")), "--json")
    assert result.exit_code == 0
    assert statuses(result)["memlock"] == "pass"


def test_people_see_reason_confirmation_and_remedy(tmp_path: Path) -> None:
    """Each failed check names what confirms it and what helps."""
    text = run("--root", str(tree(tmp_path, "65536"))).stdout
    for word in ("fail", "memlock", "confirm:", "remedy:", "1 fail"):
        assert word in text


def test_a_collected_tar_gives_the_same_answers_elsewhere(tmp_path: Path) -> None:
    """What --collect wrote, --root reads: every check but the live ones answers alike."""
    target = tmp_path / "host.tar"
    spill = tmp_path / "spill"
    spill.mkdir()
    assert run("--collect", str(target), "--spill", str(spill)).exit_code == 0
    here = statuses(run("--spill", str(spill), "--json"))
    there = statuses(run("--root", str(target), "--json"))
    assert set(here) == set(there)
    moved = {name for name in here if here[name] != there[name]}
    # Ports and free memory may change between the two; only the latter can move a status.
    assert moved <= {"ports", "environment"}


def test_a_tar_can_be_unpacked_and_read(tmp_path: Path) -> None:
    """An unpacked capture is a tree like any other."""
    target = tmp_path / "host.tar"
    run("--collect", str(target))
    unpack_tar(target, tmp_path / "root")
    assert statuses(run("--root", str(tmp_path / "root"), "--json"))["overcommit"] != "unknown"


def test_a_root_that_is_no_tree_is_misuse(tmp_path: Path) -> None:
    """A file that is no tar is status 2 with a remedy."""
    path = tmp_path / "text"
    path.write_text("no tar")
    result = run("--root", str(path))
    assert result.exit_code == 2
    assert "--collect" in result.stderr


def test_a_container_file_is_checked_in_place_of_the_host(tmp_path: Path) -> None:
    """--container answers about the file, with the same shape and statuses."""
    path = tmp_path / "compose.yaml"
    path.write_text("services: {a: {image: 'vllm/vllm-openai:v1'}}\n")
    result = run("--container", str(path), "--root", str(tmp_path), "--json")
    assert result.exit_code == 1
    assert statuses(result)["container-shm"] == "fail"


def test_two_engines_are_compared_from_files(tmp_path: Path) -> None:
    """--engine-env twice compares the two environments under their files' names."""
    one, two = tmp_path / "one.env", tmp_path / "two.env"
    one.write_text("CUDA_VISIBLE_DEVICES=0\n")
    two.write_text("CUDA_VISIBLE_DEVICES=0\n")
    words = ("--engine-env", str(one), "--engine-env", str(two), "--root", str(tmp_path), "--json")
    result = run(*words)
    assert statuses(result)["engines-gpus"] == "fail"
    assert "one.env" in result.stdout


@pytest.mark.parametrize("option", ["--container", "--engine-env"])
def test_a_missing_file_is_misuse(tmp_path: Path, option: str) -> None:
    """A file that cannot be read is named, status 2."""
    result = run(option, str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "none" in result.stderr
