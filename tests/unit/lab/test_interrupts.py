"""Ctrl-C on a lab command: status 130, not a word from its children, and none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pagoda.cli.lab import app
from pagoda.core.errors import PagodaError
from pagoda.lab.bench.child import environment
from pagoda.lab.pool import as_they_end

LIMIT_S = 60.0
PAGODA = [sys.executable, "-m", "pagoda"]
SLOW_POOL = """
import sys, time
from pathlib import Path
from pagoda.lab.pool import as_they_end

def call(path):
    Path(path).touch()
    time.sleep(600)

if __name__ == "__main__":
    try:
        list(as_they_end(call, sys.argv[1:], jobs=2))
    except KeyboardInterrupt:
        sys.exit(130)
"""
INTERRUPTED_WORKERS = """
import signal
from pagoda.lab.pool import as_they_end
print(list(as_they_end(signal.raise_signal, [signal.SIGINT] * 2, jobs=2)))
"""
TAKEN_BY_ANOTHER_THREAD = """
import os, signal, sys, threading
from multiprocessing import popen_spawn_posix
from pagoda.lab.pool import as_they_end

threading.Thread(target=threading.Event().wait, daemon=True).start()
launch = popen_spawn_posix.Popen._launch

def interrupted(self, process):
    os.kill(os.getpid(), signal.SIGINT)
    print("a process is started", flush=True)
    launch(self, process)
    print("and was told what it is for", flush=True)

popen_spawn_posix.Popen._launch = interrupted
try:
    list(as_they_end(print, [1], jobs=1))
except KeyboardInterrupt:
    sys.exit(130)
"""
SMALL_INCIDENT = """
import sys
from pagoda.lab.incident.run import IncidentSettings, measure_incident
from pagoda.lab.incident.traffic import Shape

shape = Shape(groups=4, conversations=64, upper_blocks=600, host_blocks=400, block_bytes=4096)
settings = IncidentSettings(shape=shape, rate_per_s=200.0, peak_s=300.0)
try:
    measure_incident(settings, lambda line: None)
except KeyboardInterrupt:
    sys.exit(130)
"""


def alive_in(session: int) -> dict[int, str]:
    """The command lines of a session's processes; zombies are not alive, and Python's tracker
    of resources ends by itself."""
    found: dict[int, str] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its_session = (
                (directory / "stat").read_text().rpartition(")")[2].split()[:4]
            )
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has just ended
        if int(its_session) == session and state != "Z" and "resource_tracker" not in command:
            found[int(directory.name)] = command
    return found


def wait_until(condition: Callable[[], object]) -> None:
    """Poll until something is true, or fail."""
    until_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until_s, "it never came to pass"
        time.sleep(0.01)


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own, of which nothing outlives the test."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in alive_in(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def interrupt(process: subprocess.Popen[str]) -> str:
    """Ctrl-C, as a terminal sends it; what was then said on standard error."""
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    wait_until(lambda: not alive_in(process.pid))
    return said


def children(process: subprocess.Popen[str], name: str) -> int:
    """How many of the command's processes have `name` in their command line."""
    return sum(name in command for command in alive_in(process.pid).values())


@pytest.mark.parametrize(
    "arguments",
    [["sim", "--seeds", "4", "--steps", "100000000"], ["defects", "--steps", "10000000"]],
)
def test_ctrl_c_ends_the_workers_while_they_are_starting(arguments: list[str]) -> None:
    """Workers used to raise KeyboardInterrupt into their results, and the next seeds began."""
    with started([*PAGODA, "lab", *arguments, "--jobs", "2"]) as process:
        wait_until(lambda: children(process, "spawn_main") == 2)
        assert interrupt(process).strip() == ""


def test_ctrl_c_ends_calls_under_way_and_begins_no_other(tmp_path: Path) -> None:
    """Two of four calls run; the others never do."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW_POOL)
    calls = [tmp_path / f"call-{number}" for number in range(4)]
    with started([sys.executable, str(script), *map(str, calls)]) as process:
        wait_until(lambda: calls[0].exists() and calls[1].exists())
        assert interrupt(process) == ""
    assert [call.exists() for call in calls] == [True, True, False, False]


def test_an_interrupt_of_the_parent_alone_ends_the_workers_too(tmp_path: Path) -> None:
    """`kill -INT` reaches one process, not its group."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW_POOL)
    calls = [tmp_path / f"call-{number}" for number in range(4)]
    with started([sys.executable, str(script), *map(str, calls)]) as process:
        wait_until(lambda: calls[0].exists() and calls[1].exists())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT_S) == 130
        wait_until(lambda: not alive_in(process.pid))


def test_ctrl_c_ends_the_processes_that_lab_crash_kills(tmp_path: Path) -> None:
    """Their tracebacks used to fill the terminal; the directory goes with them."""
    command = [*PAGODA, "lab", "crash", "--steps", "150", "--kills", "100000"]
    with started([*command, "--directory", str(tmp_path)]) as process:
        wait_until(lambda: any(tmp_path.glob("*/kill-1.journal")))
        said = interrupt(process)
    assert said.splitlines()[:2] == ["recording a workload", "kill -9 at every write and sync"]
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_a_replay_is_the_end_of_its_copies(tmp_path: Path, number: int) -> None:
    """A Ctrl-C reaches all of a group, a kill one process only: no copy outlives it."""
    trace = tmp_path / "long.runs"
    trace.write_text("".join(f"1 51200 9 {at * 99}+100\n" for at in range(20_000)))
    command = [*PAGODA, "replay", str(trace), "--policy", "lru", "--jobs", "2"]
    with started(command) as process:
        wait_until(lambda: len(alive_in(process.pid)) == 3)
        if number == signal.SIGINT:
            assert "Traceback" not in interrupt(process)
        process.send_signal(number)
        process.communicate(timeout=LIMIT_S)
        wait_until(lambda: not alive_in(process.pid))


def test_ctrl_c_ends_the_load_of_an_incident() -> None:
    """The generator of the load used to print a traceback."""
    with started([sys.executable, "-c", SMALL_INCIDENT]) as process:
        wait_until(lambda: children(process, "incident.generator") == 1)
        (generator,) = alive_in(process.pid).keys() - {process.pid}
        wait_until(lambda: os.getpgid(generator) == generator)  # what a Ctrl-C does not reach
        assert interrupt(process) == ""


def test_a_worker_never_sees_an_interrupt() -> None:
    """It would print a traceback while it starts or waits; ending it is its parent's part."""
    with started([sys.executable, "-c", INTERRUPTED_WORKERS]) as process:
        assert process.communicate(timeout=LIMIT_S) == ("[None, None]\n", "")


def test_an_interrupt_that_another_thread_takes_waits_until_a_process_is_started() -> None:
    """A process that was not told what it is for ends with a traceback."""
    with started([sys.executable, "-c", TAKEN_BY_ANOTHER_THREAD]) as process:
        said = process.communicate(timeout=LIMIT_S)
        assert said == ("a process is started\nand was told what it is for\n", "")
        assert process.returncode == 130


def test_an_exception_in_one_call_ends_the_others() -> None:
    """It comes through as it was raised, without a wait for what runs beside it."""
    with pytest.raises(ValueError, match="sleep length must be non-negative"):
        list(as_they_end(time.sleep, [600, -1, 600], jobs=2))


def test_a_killed_process_is_told_as_one() -> None:
    """The system may kill what takes too much memory: that is no bug, and has a remedy."""
    with pytest.raises(PagodaError, match="was killed"):
        list(as_they_end(os._exit, [9], jobs=1))


def test_a_log_names_each_seed_as_it_ends() -> None:
    """Where no bar can be drawn, a long run shows that it lives."""
    arguments = ["sim", "--seeds", "2", "--steps", "300", "--jobs", "2", "--no-coverage"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    lines = sorted(done.stderr.splitlines())
    assert [line.split(", ")[0] for line in lines] == ["seed 1: clean", "seed 2: clean"]
    assert all(line.split(", ")[1].endswith(" steps") for line in lines)
