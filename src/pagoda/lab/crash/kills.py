"""kill -9 of a real process at every write and sync of a workload: before, within and after."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from pagoda.lab.crash.check import Findings, examine
from pagoda.lab.crash.child import order_line, read_journal
from pagoda.lab.crash.ledger import Ledger
from pagoda.lab.crash.tap import Kill, Moment, Op
from pagoda.lab.crash.workload import Plan
from pagoda.lab.progress import Step, Tell


def points(log: Sequence[Op], rng: random.Random) -> list[Kill]:
    """Every place to die in a recorded run; in a write, also at a random byte within it."""
    return [
        Kill(number, moment, rng.random())
        for number, op in enumerate(log)
        for moment in Moment
        if moment is not Moment.WITHIN or not op.syncs
    ]


def kill_at(kills: Sequence[Kill], plan: Plan, tell: Tell) -> Findings:
    """Run the plan in a process of its own for each kill, let it die there, and restart."""
    findings = Findings()
    with _Forks() as forks:
        for number, kill in enumerate(kills):
            tell(Step("kill -9 at every write and sync", number / len(kills)))
            here = replace(plan, directory=plan.directory / f"kill-{number}")
            label = f"killed {kill.moment} operation {kill.op}"
            journal = plan.directory / f"kill-{number}.journal"
            ended = forks.run(order_line(here, kill, journal))
            if ended == -signal.SIGKILL:
                events = read_journal(journal)
                ledger = Ledger(events, cut=kill.cut, synced=kill.cut, in_order=True)
                examine(here.directory, ledger, findings, label=label)
            else:
                findings.fail("broken", f"{label}: it was not killed but ended with {ended}")
            shutil.rmtree(here.directory, ignore_errors=True)
            journal.unlink(missing_ok=True)
    return findings


class _Forks:
    """The process whose forks are killed (child.py), in a process group of their own: a Ctrl-C
    on the terminal is for this process, which ends them all."""

    def __enter__(self) -> _Forks:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pagoda.lab.crash.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is not None:
            os.killpg(self._process.pid, signal.SIGKILL)  # not reaped yet, so it is still there
        self._process.communicate()

    def run(self, order: str) -> int:
        """How the fork for an order ended: minus the signal, or its exit status."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "its standard input is a pipe"
        assert stdout is not None, "its standard output is a pipe"
        stdin.write(order)
        stdin.flush()
        return int(stdout.readline())
