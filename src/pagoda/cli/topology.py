"""`pagoda topology`: which GPUs belong together, from `nvidia-smi topo -m`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pagoda.advise.topology.clean import INPUT_LIMIT_BYTES, plain_lines
from pagoda.advise.topology.launch import binding, engine_flags
from pagoda.advise.topology.links import Link, note
from pagoda.advise.topology.matrix import Matrix
from pagoda.advise.topology.names import gpu_names
from pagoda.advise.topology.nodes import Nodes, compare
from pagoda.advise.topology.report import Report, analyse
from pagoda.advise.topology.ring import order
from pagoda.advise.topology.status import link_status, status_warnings
from pagoda.advise.topology.svg import draw
from pagoda.core.errors import SettingsError
from pagoda.machine.commands import capture

_STYLES = {"NV": "green", "PIX": "blue", "PXB": "cyan", "PHB": "yellow", "NODE": "yellow"}
_GROUP_STYLES = ("bold green", "bold blue", "bold magenta", "bold yellow", "bold cyan", "bold red")


def command(  # noqa: PLR0913 - a parameter for each option
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Output of `nvidia-smi topo -m`; - is standard input; without one it is run here.",
        ),
    ] = None,
    *,
    tp: Annotated[
        list[int] | None, typer.Option("--tp", min=2, help="A group size to propose, too.")
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="Output of `nvidia-smi -L`: product names of the GPUs.")
    ] = None,
    nvlink: Annotated[
        Path | None, typer.Option(help="Output of `nvidia-smi nvlink -s`: links up and down.")
    ] = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Each FILE is one host: propose equal groups on all.")
    ] = False,
    interface: Annotated[
        str | None, typer.Option(help="Network device that all hosts of --nodes share.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also propose groups of unlike pairs.")
    ] = False,
    svg: Annotated[Path | None, typer.Option(help="Draw the host into this SVG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Propose homogeneous tensor-parallel groups of this host's, or a file's, GPUs.

    Status 0 when there are groups (or there is one GPU), 1 when they are refused or unknown.
    """
    live = capture(["nvidia-smi", "topo", "-m"]) if not files else None
    if live is not None and live.problem:
        missing = f"no matrix from this host: {live.problem}; give a file, or -"
        _tell(Report("unknown", missing), [], as_json=as_json)
    hosts = {"this host": live.text} if live is not None else _hosts(files or [], nodes=nodes)
    known = gpu_names(plain_lines(_names_text(names, live=live is not None)))
    reports = {
        name: analyse(text, sizes=tp or (), names=known, force=force)
        for name, text in hosts.items()
    }
    report = next(iter(reports.values()))
    if svg is not None:
        svg.write_text(draw(report), encoding="utf-8")
    if nodes:
        _tell_nodes(compare(reports, interface=interface), as_json=as_json)
    _tell(report, [] if nvlink is None else _link_warnings(report, nvlink), as_json=as_json)


def _hosts(files: list[str], *, nodes: bool) -> dict[str, str]:
    """Matrix text by host: several only when that was asked for."""
    if len(files) > 1 and not nodes:
        raise SettingsError(
            f"{len(files)} files were given",
            key="FILE",
            source="command line",
            remedy="give one file, or --nodes when each is a host of its own",
        )
    return {name: _matrix_text(name) for name in files}


def _matrix_text(source: str) -> str:
    if source == "-":
        return sys.stdin.buffer.read(INPUT_LIMIT_BYTES).decode("utf-8", "replace")
    return _read(Path(source), "FILE")


def _names_text(names: Path | None, *, live: bool) -> str:
    """Product names: the given file's, or this host's when its own matrix is read."""
    if names is not None:
        return _read(names, "--names")
    return capture(["nvidia-smi", "-L"]).text if live else ""


def _read(path: Path, key: str) -> str:
    try:
        with path.open("rb") as file:
            return file.read(INPUT_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise SettingsError(
            f"cannot read {path}: {error.strerror}", key=key, source="command line"
        ) from error


def _link_warnings(report: Report, nvlink: Path) -> list[str]:
    gpus = report.matrix.gpus if report.matrix else ()
    return status_warnings(link_status(_read(nvlink, "--nvlink")), gpus)


def _tell(report: Report, more: list[str], *, as_json: bool) -> None:
    if as_json:
        shape = report.as_json()
        shape["warnings"] += more
        typer.echo(json.dumps(shape, indent=2))
    else:
        _console().print(_view(report, more))
    raise typer.Exit(0 if report.status == "ok" else 1)


def _tell_nodes(nodes: Nodes, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(nodes.as_json(), indent=2))
    else:
        console = _console()
        console.print(Text(f"{nodes.status}: {nodes.reason}", style="bold"))
        for size, hosts in sorted(nodes.groups.items()):
            for name, groups in hosts.items():
                console.print(Text(f"  TP {size} on {name}: {[list(group) for group in groups]}"))
        for name, value in nodes.env.items():
            console.print(Text(f"  {name}={value}"))
        console.print(_warnings(nodes.warnings))
    raise typer.Exit(0 if nodes.status == "ok" else 1)


def _console() -> Console:
    """A console that does not break lines where a program reads them."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def _view(report: Report, more: list[str]) -> RenderableType:
    style = {"ok": "bold green", "refused": "bold red"}.get(report.status, "bold yellow")
    parts: list[RenderableType] = [Text(f"{report.status}: {report.reason}", style=style)]
    if report.matrix is not None:
        parts += [_matrix_table(report), *_classes(report.matrix), *_groups(report)]
    parts += _launch(report)
    return Group(*parts, _warnings([*report.warnings, *more]))


def _matrix_table(report: Report) -> Table:
    """The matrix with a colour a class; a GPU's name has its group's colour."""
    matrix = report.matrix
    assert matrix is not None, "the caller shows a table only for a matrix"
    groups = report.proposals[len(report.chosen)].groups if len(report.chosen) > 1 else ()
    colour = {gpu: _GROUP_STYLES[k % 6] for k, group in enumerate(groups) for gpu in group}
    table = Table(box=None, pad_edge=False)
    for title in ("", *(f"GPU{gpu}" for gpu in matrix.gpus), "NUMA"):
        table.add_column(title)
    for gpu in matrix.gpus:
        near = matrix.affinity.get(gpu)
        cells = [_cell(matrix, gpu, other) for other in matrix.gpus]
        numa = Text((near.numa if near is not None else None) or "?")
        table.add_row(Text(f"GPU{gpu}", style=colour.get(gpu, "")), *cells, numa)
    return table


def _cell(matrix: Matrix, left: int, right: int) -> Text:
    if left == right:
        return Text("·", style="dim")
    link = matrix.link(left, right)
    if link is None:
        return Text("?", style="red")
    return Text(link.name, style=_STYLES.get(link.kind, "dim"))


def _classes(matrix: Matrix) -> list[Text]:
    kinds: dict[str, Link] = {link.name: link for link in matrix.links.values()}
    return [Text(f"  {name:<5}{note(kinds[name])}", style="dim") for name in sorted(kinds)]


def _groups(report: Report) -> list[Text]:
    assert report.matrix is not None, "the caller shows groups only for a matrix"
    lines = []
    for size, proposal in sorted(report.proposals.items()):
        if proposal.groups:
            rings = " ".join(str(list(order(report.matrix, group))) for group in proposal.groups)
            lines.append(Text(f"TP {size}: {rings}  (in ring order)"))
        if size in report.slower:
            lines.append(Text(f"TP {size} would slow a step to × {report.slower[size].formula}"))
    return lines


def _launch(report: Report) -> list[Text]:
    """What to set and pass for the chosen group."""
    if report.matrix is None or not report.settings:
        return []
    group = report.chosen or report.matrix.gpus
    lines = [Text(f"For GPUs {list(group)}:", style="bold")]
    lines += [Text(f"  export {s.name}={s.value}   # {s.why}") for s in report.settings]
    for gpus, prefix in binding(report.matrix, group):
        lines.append(Text(f"  {prefix}   # ranks of GPUs {gpus}"))
    if len(group) > 1:
        copies = len(report.proposals[len(group)].groups)
        for engine, flags in engine_flags(report.matrix, group, copies).items():
            lines.append(Text(f"  {engine}: {flags}"))
    return lines


def _warnings(warnings: Sequence[str]) -> Group:
    return Group(*(Text(f"! {text}", style="yellow") for text in warnings))
