"""`pagoda doctor`: what went wrong, from logs of engines, caches, NCCL and the kernel."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from pagoda.advise.doctor import (
    CHUNK_BYTES,
    FAMILIES,
    Doctor,
    Finding,
    Report,
    Watcher,
    cause,
    cause_as_dict,
    explain,
    finding_as_text,
    report_as_dict,
    report_as_text,
)
from pagoda.core.errors import SettingsError

_STATUS = {"healthy": 0, "cause": 1, "insufficient": 3}
_PROGRESS_BYTES = 64 << 20
_POLL_S = 0.5
_STDIN = "<stdin>"
_FOREIGN = {
    b"\x1f\x8b": ("gzip", "zcat FILE | pagoda doctor -"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstdcat FILE | pagoda doctor -"),
    b"\xff\xfe": ("UTF-16", "iconv -f utf-16 -t utf-8 FILE | pagoda doctor -"),
    b"\xfe\xff": ("UTF-16", "iconv -f utf-16 -t utf-8 FILE | pagoda doctor -"),
}


def command(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Logs, read together; - is standard input."),
    ] = None,
    *,
    explain_cause: Annotated[
        str | None, typer.Option("--explain", metavar="CAUSE", help="All that is known of a cause.")
    ] = None,
    list_causes: Annotated[bool, typer.Option("--list", help="List all causes.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep reading one log and tell new causes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Name the cause of a failure, with its evidence, what to do and what will not help.

    Status 0 when the logs are healthy, 1 when a cause was found, 3 when the evidence does not
    suffice, 2 when a log cannot be read.
    """
    if list_causes:
        _list(as_json=as_json)
    elif explain_cause is not None:
        _explain(explain_cause, as_json=as_json)
    elif not files:
        raise _refusal("no log was given", "give files, or - for standard input")
    elif follow:
        _follow(files, as_json=as_json)
    else:
        _finish(_examine(files), as_json=as_json)


def _list(*, as_json: bool) -> None:
    if as_json:
        found = [cause_as_dict(item) for family in FAMILIES for item in family.causes]
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for family in FAMILIES:
        if family.causes:
            typer.secho(family.title, bold=True)
        for item in family.causes:
            typer.echo(f"  {item.id:28} {item.kind}")


def _explain(name: str, *, as_json: bool) -> None:
    known = cause(name)
    if known is None:
        raise SettingsError(
            f"no cause is called {name!r}",
            key="--explain",
            source="command line",
            remedy="pagoda doctor --list shows all names",
        )
    typer.echo(
        json.dumps(cause_as_dict(known), indent=2, ensure_ascii=False)
        if as_json
        else explain(known)
    )


def _finish(report: Report, *, as_json: bool) -> None:
    """Print the report and exit with its status."""
    if as_json:
        typer.echo(json.dumps(report_as_dict(report), indent=2, ensure_ascii=False))
    else:
        typer.echo(report_as_text(report))
    raise typer.Exit(_STATUS[report.verdict])


def _examine(files: list[str]) -> Report:
    """Read all logs, one after the other, with a progress bar when they are large."""
    doctor = Doctor()
    total = sum(Path(name).stat().st_size for name in files if Path(name).is_file())
    with _progress(total) as advance:
        for name in files:
            shown = _STDIN if name == "-" else name
            for data in _chunks(name):
                doctor.feed(shown, data)
                advance(len(data))
            doctor.close(shown)
    return doctor.report()


class _progress:  # noqa: N801 - used as a function, in a with statement
    """A bar on standard error when there is much to read and someone to see it."""

    def __init__(self, total_bytes: int) -> None:
        console = Console(stderr=True)
        wanted = total_bytes >= _PROGRESS_BYTES and console.is_terminal
        self._bar = Progress(
            TextColumn("reading"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not wanted,
        )
        self._task = self._bar.add_task("reading", total=total_bytes)

    def __enter__(self) -> Callable[[int], None]:
        self._bar.start()
        return lambda size: self._bar.advance(self._task, size)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _chunks(name: str) -> Iterator[bytes]:
    """A log's bytes; refuses what is not text."""
    if name == "-":
        yield from _checked(sys.stdin.buffer, _STDIN)
        return
    try:
        with Path(name).open("rb") as file:
            yield from _checked(file, name)
    except OSError as error:
        raise _refusal(f"cannot read {name}: {error.strerror or error}", "check the path") from None


def _checked(file: BinaryIO, name: str) -> Iterator[bytes]:
    first = True
    while data := file.read(CHUNK_BYTES):
        if first:
            _require_text(data, name)
            first = False
        yield data


def _require_text(head: bytes, name: str) -> None:
    for magic, (what, remedy) in _FOREIGN.items():
        if head.startswith(magic):
            raise _refusal(f"{name} is {what}, not plain text", remedy)
    sample = head[:8192]
    if sample.count(0) * 10 > len(sample):
        raise _refusal(f"{name} is binary, not a log", "give a text file")


def _refusal(message: str, remedy: str) -> SettingsError:
    return SettingsError(message, key="FILE", source="command line", remedy=remedy)


def _follow(files: list[str], *, as_json: bool) -> None:
    """Read one live log until interrupted, then print the whole verdict."""
    if len(files) != 1:
        raise _refusal("--follow reads one log", "give one file, or - for standard input")
    shown = _STDIN if files[0] == "-" else files[0]
    watcher = Watcher()
    try:
        for piece in _live(files[0]):
            if piece.anew:
                watcher.begin_again(shown)
            _tell(watcher.take(shown, piece.data, idle_s=piece.idle_s), as_json=as_json)
    except KeyboardInterrupt:
        typer.echo("", err=True)
    _tell(watcher.close(shown), as_json=as_json)
    _finish(watcher.report(), as_json=as_json)


def _tell(findings: Iterable[Finding], *, as_json: bool) -> None:
    """Print causes as they are found; with JSON, which must stand alone, on standard error."""
    for finding in findings:
        typer.echo(finding_as_text(finding), err=as_json)


class _Piece(NamedTuple):
    """New bytes of a live log, if any, after some seconds of silence.

    `anew` says that the log was cut short or replaced, and begins again with these bytes.
    """

    data: bytes
    idle_s: float
    anew: bool = False


def _live(name: str) -> Iterator[_Piece]:
    """The pieces of a growing log, without an end; standard input ends."""
    if name == "-":
        for line in sys.stdin.buffer:
            yield _Piece(line, 0.0)
        return
    path, position, anew, since = Path(name), 0, False, time.monotonic()
    while True:
        data = _read_from(path, position)
        if data is None:  # truncated or replaced
            position, anew = 0, True
            continue
        position += len(data)
        if data:
            since = time.monotonic()
        yield _Piece(data, time.monotonic() - since, anew)
        anew = False
        if not data:
            time.sleep(_POLL_S)


def _read_from(path: Path, position: int) -> bytes | None:
    """The next piece of the file; None when it has become shorter than what was read."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size < position:
                return None
            file.seek(position)
            data = file.read(CHUNK_BYTES)
    except OSError as error:
        raise _refusal(f"cannot read {path}: {error.strerror or error}", "check the path") from None
    if position == 0:
        _require_text(data, str(path))
    return data
