"""Every example runs, as its first lines say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagoda.lab.server_process import ServerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": ":".join(sys.path)}


def run(*command: str) -> str:
    """What a Python command prints; fails with its output when it fails."""
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=280,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.engine
def test_restart(demo_model: Path) -> None:
    """The second engine restores what the first computed."""
    computed, restored = run(str(EXAMPLES / "restart.py"), str(demo_model)).splitlines()
    assert ", 0 restored" in computed
    assert ", 0 restored" not in restored


@pytest.mark.engine
def test_openai_client(demo_model: Path, tmp_path: Path) -> None:
    """The official client streams twice, the second time from the cache."""
    flags = ["--model", str(demo_model), "--drive-path", "off", "--engine-kv-memory", "64MiB"]
    with ServerProcess(flags, log=tmp_path / "log") as server:
        out = run(str(EXAMPLES / "openai_client.py"), f"{server.url}/v1")
    assert "[0 of " in out
    assert out.count("prompt tokens were cached]") == 2
    assert out.count("[0 of ") == 1


def test_own_tier() -> None:
    """A tier written from the documentation passes the conformance suite."""
    out = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "own_tier.py"))
    assert "8 passed" in out


def test_no_example_is_forgotten() -> None:
    """Each file in examples/ has a test here."""
    tested = {"restart.py", "openai_client.py", "own_tier.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


@pytest.mark.parametrize("name", ["restart.py", "openai_client.py"])
def test_a_missing_argument_is_told(name: str) -> None:
    """Without its argument an example says how it is run, not with a traceback."""
    if name == "openai_client.py":
        pytest.importorskip("openai")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=120,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"usage: python examples/{name}")
