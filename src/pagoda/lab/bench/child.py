"""Parts of a bench that need a process of their own: a restart, a memory, a start.

`python -m pagoda.lab.bench.child TASK` reads one JSON object from standard input and
writes one, on a line of its own, as the last thing on standard output.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pagoda.core.errors import EngineClosed
from pagoda.machine.leave import leave

# Task: the module and the function that does it.
TASKS = {
    "compute": ("pagoda.lab.bench.engine.restore", "compute"),
    "restore": ("pagoda.lab.bench.engine.restore", "restore"),
    "cold": ("pagoda.lab.bench.engine.bitwise", "cold"),
    "warm": ("pagoda.lab.bench.engine.bitwise", "warm"),
    "memory": ("pagoda.lab.bench.engine.memory", "serve_many"),
    "index": ("pagoda.lab.bench.index_side", "measure_size"),
    "reopen": ("pagoda.lab.bench.index_side", "measure_restart"),
}
SOURCE = Path(__file__).parents[3]  # where the package `pagoda` lies
OUTPUT_TAIL_CHARS = 600


def environment() -> dict[str, str]:
    """This process's environment, with the running copy of Pagoda before any other."""
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_child(task: str, order: dict[str, Any], *, limit_s: float = 900.0) -> dict[str, Any]:
    """Do a task in a new process and return what it found. Raises EngineClosed when it fails."""
    command = [sys.executable, "-m", "pagoda.lab.bench.child", task]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(order),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            env=environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise EngineClosed(f"the task {task!r} took longer than {limit_s:.0f} s") from error
    if done.returncode != 0:
        raise EngineClosed(f"the task {task!r} failed: {done.stderr[-OUTPUT_TAIL_CHARS:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(task: str) -> None:
    """Do one task, from standard input to standard output."""
    module, function = TASKS[task]
    found = getattr(importlib.import_module(module), function)(json.load(sys.stdin))
    sys.stdout.write("\n" + json.dumps(found | {"pid": os.getpid()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
    leave(0)
