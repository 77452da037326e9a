"""The shell around commands: help, versions, exit statuses, and how failures are told."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from pagoda._version import __version__
from pagoda.cli import main
from pagoda.core.errors import (
    CapacityError,
    DirectoryLocked,
    EngineClosed,
    FormatError,
    ModelError,
    ModelNotFound,
    PagodaError,
    RequestError,
    SettingsError,
    TierFault,
    UnsupportedModel,
)
from pagoda.tiers.drive.oserrors import typed_errors

HELP_WITHOUT = """
import sys
from pagoda.cli.main import run
sys.argv = ["pagoda", *sys.argv[1:]]
try:
    run()
except SystemExit as ended:
    print("status", ended.code)
print("heavy", sorted({"torch", "transformers", "httpx", "starlette"} & set(sys.modules)))
"""


def install(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Make `work` the body of every command."""

    def load(name: str) -> Any:
        single = typer.Typer(add_completion=False)
        single.command(name)(work)
        return get_command(single)

    monkeypatch.setattr(main, "load_command", load)


def failing(error: BaseException) -> Callable[[], None]:
    """A command that raises."""

    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("args", [[], ["--help"], ["--version"]])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    """Help and version come without torch, transformers or an HTTP library."""
    done = subprocess.run(
        [sys.executable, "-c", HELP_WITHOUT, *args], capture_output=True, text=True, check=True
    )
    assert "status 0" in done.stdout
    assert "heavy []" in done.stdout


@pytest.mark.parametrize("entry", main.COMMANDS, ids=lambda entry: entry.name)
def test_every_command_has_help_without_torch(entry: main.Entry) -> None:
    """`pagoda COMMAND --help` works for each, and none needs torch for it."""
    done = subprocess.run(
        [sys.executable, "-c", HELP_WITHOUT, entry.name, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "status 0" in done.stdout
    assert f"pagoda {entry.name}" in done.stdout
    assert "torch" not in done.stdout.splitlines()[-1]


def test_no_arguments_list_every_command(pagoda: Any) -> None:
    """`pagoda` alone helps, with status 0, and names each command."""
    result = pagoda()
    assert result.status == 0
    assert [entry.name for entry in main.COMMANDS if entry.name not in result.out] == []


def test_version(pagoda: Any) -> None:
    """The version is the package's."""
    assert pagoda("--version").out == f"pagoda {__version__}\n"


@pytest.mark.parametrize("args", [["chta"], ["config", "--no-such-flag"], ["--nonsense"]])
def test_misuse_is_status_2(pagoda: Any, args: list[str]) -> None:
    """An unknown command or flag is told on standard error."""
    result = pagoda(*args)
    assert (result.status, result.out) == (2, "")
    assert "No such" in result.err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SettingsError("said", key="k", source="s", remedy="do this"), 2),
        (ModelNotFound("said", path="p", remedy="do this"), 2),
        (UnsupportedModel("said", path="p", feature="f", remedy="do this"), 2),
        (RequestError("said", remedy="do this"), 2),
        (FormatError("said", tier="drive", path="p", remedy="do this"), 2),
        (DirectoryLocked("said", tier="drive", path="p", owner="o", remedy="do this"), 2),
        (CapacityError("said", tier="drive", asked_bytes=2, limit_bytes=1, remedy="do this"), 2),
        (ModelError("said", path="p", remedy="do this"), 1),
        (TierFault("said", tier="drive", remedy="do this"), 1),
        (EngineClosed("said", remedy="do this"), 1),
        (PagodaError("said", remedy="do this"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_a_line_and_a_remedy(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch, error: PagodaError, status: int
) -> None:
    """Bad input is 2, failed work is 1; both are two lines, without a traceback."""
    install(monkeypatch, failing(error))
    result = pagoda("config")
    assert result.status == status
    assert result.err.splitlines() == ["pagoda: said", "  do this"]


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.ENOENT, 2), (errno.ENOTDIR, 2), (errno.EACCES, 2), (errno.EROFS, 1), (errno.EIO, 1)],
)
def test_a_wrong_path_is_misuse_and_a_bad_drive_is_not(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    """What an operator named wrongly or may not open is 2; a medium that fails is 1."""

    def work() -> None:
        with typed_errors("drive", "kv"):
            raise OSError(number, os.strerror(number))

    install(monkeypatch, work)
    assert pagoda("config").status == status


def test_debug_shows_the_traceback(pagoda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --debug the traceback comes before the line, and the status stays."""
    install(monkeypatch, failing(RequestError("said")))
    result = pagoda("--debug", "config")
    assert result.status == 2
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1] == "pagoda: said"


def test_a_bug_is_told_as_one(pagoda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unforeseen exception is one line, says how to see more, and is status 1."""
    install(monkeypatch, failing(ZeroDivisionError("division by zero")))
    result = pagoda("config")
    assert result.status == 1
    assert "ZeroDivisionError" in result.err
    assert "--debug" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("name", ["torch", "transformers.models", "safetensors"])
def test_without_the_engine_it_says_what_to_install(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """`pip install pagoda-kv` alone serves no model."""
    install(monkeypatch, failing(ModuleNotFoundError(f"No module named {name!r}", name=name)))
    result = pagoda("config")
    assert result.status == 2
    assert result.err.splitlines() == [
        f"pagoda: this needs the package {name.partition('.')[0]}",
        "  pip install 'pagoda-kv[engine]'",
    ]


def test_an_interrupt_is_status_130(pagoda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends quietly with the status that shells expect."""
    install(monkeypatch, failing(KeyboardInterrupt()))
    result = pagoda("config")
    assert (result.status, result.err.strip()) == (130, "")


def test_exit_statuses_of_commands_pass(pagoda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may choose its status itself."""
    install(monkeypatch, failing(typer.Exit(7)))
    assert pagoda("config").status == 7


@pytest.mark.parametrize("args", [["config"], ["config", "--json"], ["--help"]])
def test_a_reader_that_leaves_is_no_error(args: list[str]) -> None:
    """`pagoda … | true` writes nothing to standard error, whoever flushes last."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pagoda", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()
    assert complaint == b""
    assert process.wait() in {1, 141}


UNFLUSHED = """
import sys
from types import SimpleNamespace
from pagoda.cli import main

def command() -> None:
    sys.stdout.write("nobody reads this")

sys.modules["pagoda.cli.config"] = SimpleNamespace(command=command)
sys.argv = ["pagoda", "config"]
main.run()
"""


def test_what_a_command_left_in_the_buffer_is_no_error_either() -> None:
    """Output still buffered when the command ends must not fail at the interpreter's exit."""
    process = subprocess.Popen(
        [sys.executable, "-c", UNFLUSHED], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()
    assert (complaint, process.wait()) == (b"", 141)


@pytest.mark.parametrize("args", [["config"], ["--help"], None])
def test_output_that_does_not_fit_is_no_bug(args: list[str] | None) -> None:
    """A full disk behind standard output, whoever flushes last: one line says so, and status 1."""
    command = ["-m", "pagoda", *args] if args else ["-c", UNFLUSHED]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "pagoda: cannot write: No space left on device"
    assert "bug" not in done.stderr
    assert "Exception" not in done.stderr


def test_closed_streams_are_no_bug(tmp_path: Path) -> None:
    """`pagoda … >&-`: the command does its work, and no file takes the stream's number."""
    script = f"exec {sys.executable} -m pagoda config <&- >&- 2>{tmp_path / 'err'}"
    assert subprocess.run(["/bin/sh", "-c", script], check=False).returncode == 0
    assert (tmp_path / "err").read_text() == ""
