"""Output of a program of this host, taken with a deadline; it decides nothing.

Programs are named by a fixed list of arguments, found on PATH, run with C locale and no
standard input. A missing program or a late one is a fact (`problem`), not an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Captured", "capture"]

OUTPUT_LIMIT_CHARS = 4 << 20


@dataclass(frozen=True, slots=True)
class Captured:
    """What a program printed; `problem` says why there is no usable output, else it is empty."""

    text: str
    problem: str = ""


def capture(argv: Sequence[str], *, timeout_s: float = 20.0) -> Captured:
    """Run a program and keep its output; failures come back as `problem`, nothing is raised."""
    path = shutil.which(argv[0])
    if path is None:
        return Captured("", f"{argv[0]} is not installed or not on PATH")
    try:
        done = subprocess.run(
            [path, *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return Captured("", f"{argv[0]} did not answer within {timeout_s:.0f} s")
    except OSError as error:
        return Captured("", f"{argv[0]} cannot be run: {error.strerror}")
    text = done.stdout.decode("utf-8", "replace")[:OUTPUT_LIMIT_CHARS]
    if done.returncode != 0:
        last = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()[-1:]
        return Captured(text, f"{argv[0]} ended with status {done.returncode}: {' '.join(last)}")
    return Captured(text)
