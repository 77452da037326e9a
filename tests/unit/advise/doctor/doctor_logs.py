"""The doctor's own test logs, the shared ones when present, and ways to disguise a log."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagoda.advise.doctor import Report, diagnose

HERE = Path(__file__).parent
_CLOCK = re.compile(r"\b(\d\d):(\d\d):(\d\d)\b")
_RANK = re.compile(r"\b(TP|[Rr]ank |rank)(\d{1,2})\b")


@dataclass(frozen=True)
class Log:
    """A log and what it must be called: a cause's id, a kind, or a verdict."""

    name: str
    wanted: str
    text: str


def excerpts() -> list[Log]:
    """A few hand-written lines for every cause, named after it."""
    return [Log(head, head, text) for head, text in _sections("excerpts")]


def cases() -> list[Log]:
    """Longer hand-written logs with the kind, or the verdict, that is right."""
    return [
        Log(name, wanted, text)
        for head, text in _sections("cases")
        for name, _, wanted in [head.rpartition(": ")]
    ]


def shared_folder() -> Path | None:
    """Where the public excerpts lie: PAGODA_SHARED, or `shared` beside the repository."""
    beside = HERE.parents[4] / "shared"
    root = Path(os.environ.get("PAGODA_SHARED", beside))
    folder = root / "data" / "logs"
    return folder if (folder / "INDEX.tsv").is_file() else None


def shared() -> list[Log]:
    """The public excerpts with the kind that their index gives; none without the folder."""
    folder = shared_folder()
    if folder is None:
        return []
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        Log(row["file"], row["kind"], (folder / row["file"]).read_text("utf-8", "replace"))
        for row in rows
    ]


def examine(text: str) -> Report:
    """The report on one log."""
    return diagnose([("test.log", text.encode())])


def kind(report: Report) -> str:
    """The kind of the diagnosis, or the verdict when there is none."""
    return report.causes[0].cause.kind if report.causes else report.verdict


def _sections(folder: str) -> list[tuple[str, str]]:
    """The parts of a folder's files; a line `== head` starts one."""
    found = []
    for path in sorted((HERE / folder).glob("*.txt")):
        for part in ("\n" + path.read_text("utf-8")).split("\n== ")[1:]:
            head, _, text = part.partition("\n")
            found.append((head.strip(), text + "\n"))
    return found


def _each_line(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(line) if line else line for line in text.split("\n"))


def _later(match: re.Match[str]) -> str:
    """A clock time, seven hours on; the order of times within a day may wrap for no log here."""
    hour = (int(match[1]) + 1) % 24
    return f"{hour:02}:{match[2]}:{match[3]}"


DISGUISES: dict[str, Callable[[str], str]] = {
    "other times": lambda text: _CLOCK.sub(_later, text),
    "other ranks": lambda text: _RANK.sub(lambda match: f"{match[1]}{int(match[2]) + 1}", text),
    "newest first": lambda text: "\n".join(reversed(text.split("\n"))),
    "every line twice": lambda text: "\n".join(line for line in text.split("\n") for _ in range(2)),
    "a worker's prefix": _each_line(lambda line: f"(Worker_TP1 pid=4711) {line}"),
    "an actor's prefix": _each_line(lambda line: f"(WorkerDict pid=99) {line}"),
    "a pod's prefix": _each_line(lambda line: f"[pod/llm-0/engine] {line}"),
    "a container's prefix": _each_line(lambda line: f"engine-1  | {line}"),
    "a collector's time": _each_line(lambda line: f"2026-05-05T06:07:08.123456Z {line}"),
    "a quotation": _each_line(lambda line: f"> {line}"),
    "colours": _each_line(lambda line: f"\x1b[1;36m{line}\x1b[0;0m"),
    "colours without escapes": _each_line(lambda line: f"[36m{line}[0m"),
    "a terminal's line ends": lambda text: text.replace("\n", "\r\n"),
    "container JSON": _each_line(
        lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-05-05"})
    ),
}
