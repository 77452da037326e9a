"""Child processes with a deadline, watched while they run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

POLL_S = 0.2
GRACE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command to run; its output goes to `NAME.out` and `NAME.err` in `logs`.

    `watch` is called several times a second while it runs; `inherit` are descriptors that the
    child keeps open; `env` is added to this process's environment.
    """

    name: str
    command: list[str]
    logs: Path
    watch: Callable[[], None]
    env: Mapping[str, str] = field(default_factory=dict)
    inherit: tuple[int, ...] = ()
    deadline_s: float = 1800.0

    @property
    def out(self) -> Path:
        """The file that receives standard output."""
        return self.logs / f"{self.name}.out"

    @property
    def err(self) -> Path:
        """The file that receives standard error."""
        return self.logs / f"{self.name}.err"


Run = Callable[[Job], None]


class ChildFailed(Exception):
    """A child process ended badly or late; `summary` is its own last word."""

    def __init__(self, summary: str) -> None:
        super().__init__(summary)
        self.summary = summary


def run_child(job: Job) -> None:
    """Run a job to its end; raises ChildFailed when it fails or passes its deadline.

    The child never outlives this call: it is ended when the deadline passes or when the call
    is interrupted.
    """
    with job.out.open("wb") as out, job.err.open("wb") as err:
        child = subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **job.env},
            pass_fds=job.inherit,
        )
        try:
            _watch(child, job)
        finally:
            _end(child)
    if child.returncode != 0:
        raise ChildFailed(last_word(job.err.read_text(encoding="utf-8", errors="replace")))


def _watch(child: subprocess.Popen[bytes], job: Job) -> None:
    for _ in range(int(job.deadline_s / POLL_S)):
        job.watch()
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=POLL_S)
            return
    raise ChildFailed(f"it did not end within {job.deadline_s:.0f} s")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Stop a child that still runs: first ask, then kill."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def last_word(text: str) -> str:
    """The line that says best why a program failed: its last error, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1]
