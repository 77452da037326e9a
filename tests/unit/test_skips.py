"""The plugin that counts skipped tests by what was absent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
SUITE = """
import pytest

def test_passes(): pass

@pytest.mark.server
def test_server(): pytest.skip("redis-server: not on PATH")

@pytest.mark.engines
@pytest.mark.skipif(True, reason="vLLM: not installed")
def test_engine(): pass

def test_model(): pytest.skip("needs the large model: not set")

def test_module(): pytest.importorskip("no_such_module")

@pytest.mark.xfail
def test_expected(): assert False
"""
MODULE = """
import pytest
pytestmark = pytest.mark.server
pytest.skip("fio: not on PATH", allow_module_level=True)
"""


def run_suite(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the suite above in a process of its own, with the plugin."""
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n server: needs one\n engines: runs one\n"
    )
    (folder / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "skips", *options]
    environment = {**os.environ, "PYTHONPATH": str(PLUGINS), "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of the output."""
    return done.stdout.rstrip("\n").rpartition("\n")[2]


def test_the_last_line_counts_by_what_was_absent(tmp_path):
    """Reasons, skipif and importorskip are named; an expected failure is not among them."""
    done = run_suite(tmp_path)
    absent = "large model (1), no_such_module (1), redis-server (1), vLLM (1)"
    expected = f"1 passed, 4 skipped: {absent}"
    assert last_line(done) == expected
    assert done.returncode == 0


def test_a_module_that_skips_itself_is_counted(tmp_path):
    """A skip at collection is no silent hole."""
    (tmp_path / "test_module.py").write_text(MODULE)
    assert "5 skipped: fio (1), large model (1)" in last_line(run_suite(tmp_path))


@pytest.mark.parametrize(
    ("option", "missing", "left"),
    [
        ("--require-servers", "redis-server", "large model (1), no_such_module (1), vLLM (1)"),
        ("--require-engines", "vLLM", "large model (1), no_such_module (1), redis-server (1)"),
    ],
)
def test_what_is_required_fails_its_tests_and_no_others(tmp_path, option, missing, left):
    """The test with the option's marker fails and says what is missing; others stay skipped."""
    done = run_suite(tmp_path, option)
    assert done.returncode == 1
    assert f"{option}: it is missing: {missing}" in done.stdout
    assert last_line(done) == f"1 passed, 1 failed, 3 skipped: {left}"


@pytest.mark.parametrize(("marked", "status"), [(True, 2), (False, 0)])
def test_required_servers_fail_a_module_of_server_tests(tmp_path, marked, status):
    """A module that skips itself fails when its tests are marked, else it does not."""
    module = MODULE if marked else MODULE.replace("pytestmark = pytest.mark.server", "")
    (tmp_path / "test_module.py").write_text(module)
    options = ("--require-servers", "--deselect", "test_suite.py::test_server")
    assert run_suite(tmp_path, *options).returncode == status
