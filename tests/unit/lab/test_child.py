"""Child processes and the lock they inherit, with real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagoda.core.errors import ModelError
from pagoda.lab.child import ChildFailed, Job, last_word, run_child
from pagoda.lab.lock import locked
from pagoda.lab.progress import silent

SLEEP = "import time; time.sleep(60)"


def job(logs: Path, code: str, **changes: object) -> Job:
    """A job that runs Python code."""
    settings = {"watch": lambda: None, **changes}
    return Job(name="child", command=[sys.executable, "-c", code], logs=logs, **settings)


def test_a_child_sees_the_added_environment_and_leaves_its_output(tmp_path):
    """Variables reach the child; both outputs land in files of the job's name."""
    code = "import os, sys; print(os.environ['GIVEN']); sys.stderr.write('aside')"
    run_child(job(tmp_path, code, env={"GIVEN": "word"}))
    assert (tmp_path / "child.out").read_text() == "word\n"
    assert (tmp_path / "child.err").read_text() == "aside"


def test_a_failing_child_is_told_by_its_last_error(tmp_path):
    """The summary is the child's own line, not its exit status."""
    with pytest.raises(ChildFailed) as caught:
        run_child(job(tmp_path, "raise OSError('disk on fire')"))
    assert caught.value.summary == "OSError: disk on fire"


def test_a_child_that_is_late_is_ended(tmp_path):
    """The deadline ends the wait and the child."""
    began_s = time.monotonic()
    with pytest.raises(ChildFailed, match="did not end within"):
        run_child(job(tmp_path, SLEEP, deadline_s=0.6))
    assert time.monotonic() - began_s < 30


def test_an_interrupt_ends_the_child(tmp_path):
    """Ctrl-C while watching leaves no process behind: the lock it inherited is free at once."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    path = tmp_path / "lock"
    with pytest.raises(KeyboardInterrupt), locked(path, silent) as handle:
        run_child(job(tmp_path, SLEEP, watch=interrupt, inherit=(handle,)))
    with locked(path, silent, wait_s=0.0):
        assert path.read_text().strip().isdigit()


def test_the_lock_lasts_as_long_as_a_child_that_inherited_it(tmp_path):
    """A killed parent's converter still writes: nobody may sweep its files away."""
    path = tmp_path / "lock"
    with locked(path, silent) as handle:
        child = subprocess.Popen([sys.executable, "-c", SLEEP], pass_fds=(handle,))
    try:
        with pytest.raises(ModelError, match="has held the lock"), locked(path, silent, wait_s=0.3):
            pass
    finally:
        child.kill()
        child.wait()
    with locked(path, silent, wait_s=0.0):
        assert path.exists()


def test_a_child_keeps_the_descriptors_it_inherits_and_no_other(tmp_path):
    """The lock's descriptor is open in the child when the job says so, else it is not."""
    with locked(tmp_path / "lock", silent) as handle:
        code = f"import os; os.fstat({handle})"
        run_child(job(tmp_path, code, inherit=(handle,)))
        with pytest.raises(ChildFailed, match="Bad file descriptor"):
            run_child(job(tmp_path, code))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nERROR: x\nb\n", "ERROR: x"),
        ("Traceback\nValueError: y\n", "ValueError: y"),
        ("a\n\nb \n", "b"),
        ("", "it said nothing"),
    ],
)
def test_the_last_word_is_the_last_error_else_the_last_line(text, expected):
    """A reader gets the one line that says why."""
    assert last_word(text) == expected
