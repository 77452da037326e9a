"""Leaving a process that has computed."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, types
if {torch}: sys.modules["torch"] = types.ModuleType("torch")
atexit.register(lambda: sys.stdout.write("teardown"))
from pagoda.machine.leave import leave
sys.stdout.write("work ")
leave(7)
"""


@pytest.mark.parametrize(("torch", "said"), [(True, "work "), (False, "work teardown")])
def test_output_is_flushed_and_the_status_kept(torch: bool, said: str) -> None:
    """With torch loaded the teardown is skipped, and nothing that was written is lost."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(torch=torch)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, said)
