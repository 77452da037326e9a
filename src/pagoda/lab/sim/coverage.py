"""Which lines of core and store a run passed through.

Python 3.11 has no cheap hook for lines, so a trace function watches stretches of a run. It
leaves a function alone once all of its lines were seen. Not counted, because they never run
or run at import: module and class level, protocols' empty bodies, messages of assertions
and code for type checkers.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGES = ("pagoda.core", "pagoda.store")
# What is not simulated, and why: the beginnings of files' names.
ELSEWHERE = {
    "core/errors.py": "has no lines that decide anything",
    "core/sizing/": "KV arithmetic for the planner",
    "core/trace/": "reads traces",
    "core/policy/": "replayed over traces, and held to a contract",
    "core/admission/": "replayed over traces",
    "store/executor.py": "threads; the simulation steps every order itself",
    "store/open.py": "opens directories and servers",
    "store/drives.py": "opens directories",
    "store/ledger.py": "reads and writes a file",
    "store/kept.py": "reads and writes a file",
    "store/inspect.py": "reads a slab file",
    "store/fingerprint": "reads a model's files",
    "store/weight_files.py": "reads a model's files",
    **dict.fromkeys(
        (
            "core/holdings.py",
            "core/hottest.py",
            "core/pin_book.py",
            "core/pins.py",
            "store/admin.py",
            "store/catalogue.py",
            "store/census.py",
            "store/expiry.py",
            "store/offline.py",
            "store/overview.py",
            "store/pins",
            "store/prefetch.py",
            "store/scopes.py",
        ),
        "administration: an operator's calls, above the store",
    ),
}


@dataclass(frozen=True, slots=True)
class FileCoverage:
    """Lines of a file that can run, and those that did."""

    name: str
    lines: frozenset[int]
    seen: frozenset[int]

    @property
    def share(self) -> float:
        """Of 1; a file without lines that can run is covered."""
        return len(self.seen) / len(self.lines) if self.lines else 1.0

    def missing(self) -> list[int]:
        """Lines that did not run."""
        return sorted(self.lines - self.seen)


class Coverage:
    """Watches lines while it is switched on."""

    def __init__(self) -> None:
        self._lines = {path: _lines(path) for path in _files()}
        self._seen: dict[str, set[int]] = {str(path): set() for path in self._lines}
        self._left: dict[CodeType, set[int] | None] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what runs inside."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def add(self, seen: dict[str, list[int]]) -> None:
        """Take in what another process saw (see `seen`)."""
        for name, lines in seen.items():
            self._seen[name].update(lines)

    def seen(self) -> dict[str, list[int]]:
        """What was seen so far, by path."""
        return {name: sorted(lines) for name, lines in self._seen.items()}

    def files(self) -> list[FileCoverage]:
        """Every file, by name."""
        return [
            FileCoverage(_short(path), lines, frozenset(self._seen[str(path)]) & lines)
            for path, lines in self._lines.items()
        ]

    def share(self) -> float:
        """Of all lines together."""
        files = self.files()
        return sum(len(file.seen) for file in files) / sum(len(file.lines) for file in files)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        code = frame.f_code
        if code not in self._left:
            self._left[code] = self._lines_of(code)
        return self._line if self._left[code] else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        left = self._left[frame.f_code]
        if event == "line" and left:
            self._seen[frame.f_code.co_filename].add(frame.f_lineno)
            left.discard(frame.f_lineno)
        return self._line if left else None

    def _lines_of(self, code: CodeType) -> set[int] | None:
        if code.co_filename not in self._seen:
            return None
        own = {line for _, _, line in code.co_lines() if line is not None}
        return own & self._lines[Path(code.co_filename)]


def _files() -> list[Path]:
    roots = [Path(str(importlib.import_module(name).__file__)).parent for name in PACKAGES]
    files = [path for root in roots for path in sorted(root.rglob("*.py"))]
    return [path for path in files if not _short(path).startswith(tuple(ELSEWHERE))]


def _short(path: Path) -> str:
    return str(path)[str(path).rindex("pagoda/") + len("pagoda/") :]


def _lines(path: Path) -> frozenset[int]:
    """Lines of the functions of a file that can run."""
    source = path.read_text(encoding="utf-8")
    found: set[int] = set()
    stack = [compile(source, str(path), "exec")]
    while stack:
        code = stack.pop()
        stack += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        if code.co_flags & 1:  # a function: it has fast locals
            lines = {line for _, _, line in code.co_lines() if line is not None}
            found |= lines - {code.co_firstlineno} if len(lines) > 1 else lines
    return frozenset(found - _never(ast.parse(source)))


def _never(tree: ast.Module) -> set[int]:
    """Lines of empty bodies, and of messages that only a broken invariant shows."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.msg is not None:
            end = node.test.end_lineno or node.lineno
            lines |= set(range(end + 1, (node.end_lineno or end) + 1))
        elif isinstance(node, ast.FunctionDef) and _is_empty(node):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _is_empty(function: ast.FunctionDef) -> bool:
    return all(
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        for statement in function.body
    )
