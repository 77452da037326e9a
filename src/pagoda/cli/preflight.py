"""`pagoda preflight`: is this host, or a container file, ready."""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pagoda.advise.preflight.check import GIB, Check, ready, shape
from pagoda.advise.preflight.container import container_checks
from pagoda.advise.preflight.engines import environment_file
from pagoda.advise.preflight.need import DEFAULT_PORT, Need
from pagoda.advise.preflight.run import host_checks, spills_of
from pagoda.core.errors import SettingsError
from pagoda.machine.collect import captured_files, unpack_tar, write_tar
from pagoda.machine.tree import HostTree

_STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red", "unknown": "dim"}
_FILE_LIMIT_BYTES = 1 << 20


def command(  # noqa: PLR0913 - a parameter for each option
    *,
    spill: Annotated[
        list[Path] | None, typer.Option(help="A directory to spill to; probed. Repeatable.")
    ] = None,
    spill_gib: Annotated[float, typer.Option(help="GiB to spill into each.", min=0)] = 0,
    ranks: Annotated[int, typer.Option(help="Ranks on this host.", min=1)] = 1,
    pinned_gib: Annotated[
        float | None, typer.Option(help="GiB of host memory to pin for each rank.", min=0)
    ] = None,
    port: Annotated[
        list[int] | None, typer.Option(help="A port to listen on. Repeatable.", min=1, max=65535)
    ] = None,
    engine_env: Annotated[
        list[Path] | None,
        typer.Option(help="An engine's environment (KEY=VALUE, /proc/PID/environ); give two."),
    ] = None,
    container: Annotated[
        Path | None, typer.Option(help="Check this Dockerfile or compose file, not the host.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Read this captured tree, or its tar, not the host.")
    ] = None,
    collect: Annotated[
        Path | None, typer.Option(help="Write this host's facts into a tar, without names.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Check what a tiered KV cache needs of this host; status 1 when a check fails."""
    need = Need(
        ranks=ranks,
        pinned_bytes=None if pinned_gib is None else int(pinned_gib * GIB),
        spills=tuple(spill or ()),
        spill_bytes=int(spill_gib * GIB),
        ports=tuple(port or (DEFAULT_PORT,)),
        engines={
            path.name: environment_file(_read(path, "--engine-env")) for path in engine_env or ()
        },
    )
    with _tree(root) as tree:
        if collect is not None:
            _collect(tree, need, collect)
            return
        if container is not None:
            checks = container_checks(_read(container, "--container"), tree)
        else:
            checks = host_checks(tree, need)
    _tell(checks, as_json=as_json)


@contextmanager
def _tree(root: Path | None) -> Iterator[HostTree]:
    """The running host, a captured directory, or a tar unpacked for as long as it is read."""
    if root is None:
        yield HostTree()
        return
    if root.is_dir():
        yield HostTree(root)
        return
    with tempfile.TemporaryDirectory(prefix="pagoda-root-") as directory:
        try:
            unpack_tar(root, Path(directory))
        except (OSError, tarfile.TarError) as error:
            raise SettingsError(
                f"{root} is neither a directory nor a tar that can be read: {error}",
                key="--root",
                source="command line",
                remedy="make one with `pagoda preflight --collect FILE`",
            ) from error
        yield HostTree(Path(directory))


def _collect(tree: HostTree, need: Need, target: Path) -> None:
    files = captured_files(tree, spills_of(tree, need))
    try:
        write_tar(files, target)
    except OSError as error:
        raise SettingsError(
            f"cannot write {target}: {error.strerror}", key="--collect", source="command line"
        ) from error
    typer.echo(f"{target}: {len(files)} files; look through it before you give it to anyone")


def _read(path: Path, key: str) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise SettingsError(
            f"cannot read {path}: {error.strerror}", key=key, source="command line"
        ) from error


def _tell(checks: list[Check], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(shape(checks), indent=2))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=200)
        for check in checks:
            console.print(_line(check))
        counts = {s: sum(check.status == s for check in checks) for s in _STYLES}
        console.print(Text(", ".join(f"{count} {status}" for status, count in counts.items())))
    raise typer.Exit(0 if ready(checks) else 1)


def _line(check: Check) -> Text:
    text = Text(f"{check.status:<8}", style=_STYLES[check.status])
    text.append(f"{check.id:<20}", style="bold").append(check.reason, style="default")
    if check.status in ("warn", "fail"):
        text.append(f"\n{'':28}confirm: {check.confirm}", style="dim")
        text.append(f"\n{'':28}remedy:  {check.remedy}", style="default")
    return text
