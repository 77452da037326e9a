"""The `pagoda` command: its list of commands, its options and how failures are told.

A new command is one line in COMMANDS. Its module exposes `command` (a function that Typer can
read) or, when it has commands of its own, `app` (a Typer). It is imported when it is run, so
that help stays quick and free of torch.

Exit status: 0 done; 1 the work failed; 2 usage, settings or input are wrong; 130 interrupted;
141 the reader of our output went away.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from pagoda._version import __version__
from pagoda.core.errors import (
    CapacityError,
    DirectoryLocked,
    FormatError,
    ModelNotFound,
    PagodaError,
    RequestError,
    SettingsError,
    TierError,
    TraceError,
    UnsupportedModel,
)
from pagoda.machine.leave import leave

FAILED, MISUSED, INTERRUPTED, UNREAD = 1, 2, 130, 141
MISUSES = (
    SettingsError,
    ModelNotFound,
    UnsupportedModel,
    RequestError,
    FormatError,
    DirectoryLocked,
    CapacityError,
    TraceError,
)
# A tier's path leads nowhere or to something else, or this user may not go there.
_WRONG_PATH = {
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
}


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_ENGINE = frozenset({"torch", "transformers", "safetensors", "tokenizers", "jinja2"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A command's name, the module that holds it and its line in the list of commands."""

    name: str
    module: str
    summary: str


COMMANDS: tuple[Entry, ...] = (
    Entry("demo", "pagoda.cli.demo", "See an answer come from sealed KV after a restart."),
    Entry("serve", "pagoda.cli.serve", "Serve a model over the OpenAI API."),
    Entry("chat", "pagoda.cli.chat", "Talk to a model in the terminal."),
    Entry("cache", "pagoda.cli.cache", "See, clear and fill the caches of a running server."),
    Entry("pin", "pagoda.cli.pin", "Keep a prefix in the caches of a running server."),
    Entry("unpin", "pagoda.cli.unpin", "End pins before their time."),
    Entry("inspect", "pagoda.cli.inspect", "Show what is in a drive, and verify it."),
    Entry("bench", "pagoda.cli.bench", "Measure a server, the engine, the tiers or the index."),
    Entry("verify", "pagoda.cli.verify", "Prove that a server restores what it computed."),
    Entry("lab", "pagoda.cli.lab", "Break the cache on purpose, and see that it never lies."),
    Entry("model", "pagoda.cli.model", "Get the demonstration model."),
    Entry("plan", "pagoda.cli.plan", "Plan a deployment: does it fit, how fast, at what cost."),
    Entry("preflight", "pagoda.cli.preflight", "Check that this host is ready."),
    Entry("replay", "pagoda.cli.replay", "Replay a trace against policies and sizes of tiers."),
    Entry("connect", "pagoda.cli.connect", "Check an engine that Pagoda plugs into."),
    Entry("topology", "pagoda.cli.topology", "Propose GPU groups from `nvidia-smi topo -m`."),
    Entry("doctor", "pagoda.cli.doctor", "Say what went wrong, from logs."),
    Entry("config", "pagoda.cli.config", "Show each setting and where it came from."),
)


class Commands(TyperGroup):
    """The group that imports a command when it is run, and turns errors into exit statuses."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Swap the placeholder that help shows for the real command."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name and placeholder else placeholder, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raise typer.Exit for whatever goes wrong in it."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a reader that left can still be told apart
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _silence_stdout()
            raise typer.Exit(UNREAD) from None
        except Exception as error:
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise  # Typer's own: usage errors, exits
            raise typer.Exit(report(error, debug=bool(ctx.params.get("debug")))) from None
        return result


app = typer.Typer(cls=Commands, name="pagoda", invoke_without_command=True)


def load_command(name: str) -> Any:
    """The command `name`, its module imported."""
    entry = next(entry for entry in COMMANDS if entry.name == name)
    module = importlib.import_module(entry.module)
    loaded: Any
    if hasattr(module, "app"):
        loaded = get_group(module.app)
    else:
        single = typer.Typer(add_completion=False)
        single.command(entry.name, cls=getattr(module, "COMMAND", None))(module.command)
        loaded = get_command(single)
    loaded.name = entry.name
    return loaded


def report(error: Exception, *, debug: bool) -> int:
    """Tell standard error what went wrong and what to do; returns the exit status."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, ModuleNotFoundError) and _package(error) in _ENGINE:
        _complain(f"this needs the package {_package(error)}", "pip install 'pagoda-kv[engine]'")
        return MISUSED
    if isinstance(error, OSError) and error.errno in _FULL:
        _silence_stdout()
        where = f"for {error.filename}" if error.filename else "where the output goes"
        _complain(f"cannot write: {error.strerror}", f"make room {where} and run it again")
        return FAILED
    if not isinstance(error, PagodaError):
        message = f"unexpected {type(error).__name__}: {error}"
        remedy = "" if debug else "this is a bug in Pagoda: `pagoda --debug …` shows the traceback"
        _complain(message, remedy)
        return FAILED
    _complain(error.message, error.remedy)
    return MISUSED if isinstance(error, MISUSES) or _wrong_path(error) else FAILED


def _package(error: ModuleNotFoundError) -> str:
    return (error.name or "").partition(".")[0]


def _wrong_path(error: PagodaError) -> bool:
    cause = error.__cause__
    return (
        isinstance(error, TierError) and isinstance(cause, OSError) and cause.errno in _WRONG_PATH
    )


def _complain(message: str, remedy: str) -> None:
    typer.secho(f"pagoda: {message}", fg="red", err=True)
    if remedy:
        typer.echo(f"  {remedy}", err=True)


def _silence_stdout() -> None:
    """Nobody reads, or nothing fits: keep the interpreter's last flush from failing aloud."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pagoda {__version__}")
        raise typer.Exit


@app.callback()
def pagoda(
    ctx: typer.Context,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
) -> None:
    """Tiered, sealed KV cache for large language models: never a wrong byte."""
    del debug, version  # read by Commands.invoke and _print_version
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _placeholder() -> None:
    raise AssertionError("a placeholder is never run: Commands.resolve_command replaces it")


for _entry in COMMANDS:
    app.command(_entry.name, help=_entry.summary)(_placeholder)


def _keep_streams() -> None:
    """Put /dev/null where a standard stream was closed: a file of ours would take its number, and
    with it what libraries print."""
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(null, True)
    os.close(null)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def run() -> None:
    """The entry point: run the command line, exit with its status."""
    _keep_streams()
    try:
        get_command(app)(prog_name="pagoda")
    except OSError as error:  # of help, which comes before any command is invoked
        leave(report(error, debug=False))
    except SystemExit as exit:
        if not isinstance(exit.code, int):
            raise
        leave(exit.code)
