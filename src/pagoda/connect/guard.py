"""The version guard: does an installed engine still have what a connector overrides?

It reads the engine's sources and imports none of them, so that it answers at once, before the
engine starts, and for another interpreter as well. This file needs the standard library alone:
there it is run by path (`examine_elsewhere`), and reads from its input what is expected.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

_TIMEOUT_S = 60.0
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A class of an engine as a connector knows it: the parameters of methods, without self, and
    the annotated fields that it uses. With `sealed`, an abstract method that is not among
    `methods` counts as a change."""

    module: str
    name: str
    methods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    sealed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What a connector needs of an engine: its package, the distributions that may bring it, the
    versions that were tested, and the classes that it touches."""

    package: str
    distributions: tuple[str, ...]
    tested: tuple[str, ...]
    classes: tuple[Expected, ...]


class Fit(StrEnum):
    """A verdict in one word."""

    TESTED = "tested"  # a version that the tests ran on
    UNTESTED = "untested"  # another version, with the same signatures
    CHANGED = "changed"  # something differs: the connector refuses to start
    ABSENT = "absent"  # the engine is not installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found, and what differs, in words."""

    package: str
    version: str
    fit: Fit
    tested: tuple[str, ...]
    changes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the connector starts."""
        return self.fit in (Fit.TESTED, Fit.UNTESTED)


def examine(surface: Surface) -> Verdict:
    """Compare with what is installed for this interpreter."""
    root = _root(surface.package)
    version = _version(surface.distributions)
    if root is None:
        return _verdict(surface, version, Fit.ABSENT)
    changes = tuple(change for one in surface.classes for change in _changes(root, one))
    if changes:
        return _verdict(surface, version, Fit.CHANGED, changes)
    return _verdict(surface, version, Fit.TESTED if version in surface.tested else Fit.UNTESTED)


def examine_elsewhere(surface: Surface, python: Path) -> Verdict:
    """Compare with what is installed for another interpreter. Raises OSError when that does not
    run, ValueError when it does not answer."""
    try:
        done = subprocess.run(
            [str(python), "-I", __file__],
            input=json.dumps(asdict(surface)),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        return _verdict_of(json.loads(done.stdout))
    except subprocess.SubprocessError as error:
        raise ValueError(f"{python} did not answer: {error}") from error
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{python} answered something else than what was asked") from error


def _verdict_of(answer: Any) -> Verdict:
    """A verdict from what `asdict` and JSON made of it; raises for what is none."""
    texts = [answer["package"], answer["version"], *answer["tested"], *answer["changes"]]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a verdict is of texts")
    return Verdict(
        package=answer["package"],
        version=answer["version"],
        fit=Fit(answer["fit"]),
        tested=tuple(answer["tested"]),
        changes=tuple(answer["changes"]),
    )


def _verdict(surface: Surface, version: str, fit: Fit, changes: tuple[str, ...] = ()) -> Verdict:
    return Verdict(
        package=surface.package, version=version, fit=fit, tested=surface.tested, changes=changes
    )


def _root(package: str) -> Path | None:
    """The directory of a package; a top-level package is found without being imported."""
    found = importlib.util.find_spec(package)
    places = found.submodule_search_locations if found is not None else None
    return Path(next(iter(places))) if places else None


def _version(distributions: tuple[str, ...]) -> str:
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _changes(root: Path, expected: Expected) -> Iterator[str]:
    """What differs of one class, in words."""
    where = f"{expected.module}.{expected.name}"
    try:
        found = _class_of(root, expected)
    except (OSError, SyntaxError, RecursionError, MemoryError) as error:
        yield f"{where} cannot be read: {error}"
        return
    if found is None:
        yield f"{where} is not there"
        return
    methods = {one.name: one for one in found.body if isinstance(one, _Function)}
    for name, wanted in expected.methods.items():
        has = _parameters(methods[name]) if name in methods else None
        if has is None:
            yield f"{where}.{name} is not there"
        elif has != tuple(wanted):
            yield f"{where}.{name} takes ({', '.join(has)}), not ({', '.join(wanted)})"
    annotated = {
        one.target.id
        for one in found.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    yield from (f"{where} has no {name}" for name in expected.fields if name not in annotated)
    if expected.sealed:
        for name, method in methods.items():
            if _is_abstract(method) and name not in expected.methods:
                yield f"{where}.{name} is abstract, and new"


def _class_of(root: Path, expected: Expected) -> ast.ClassDef | None:
    below = root.joinpath(*expected.module.split(".")[1:])
    for file in (below.with_suffix(".py"), below / "__init__.py"):
        if file.is_file():
            tree = ast.parse(file.read_bytes())
            classes = (one for one in tree.body if isinstance(one, ast.ClassDef))
            return next((one for one in classes if one.name == expected.name), None)
    return None


def _parameters(method: _Function) -> tuple[str, ...]:
    """Names in order, without self or cls; those behind * and the stars themselves count."""
    given = method.args
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list)
    more = [f"*{given.vararg.arg}"] if given.vararg else []
    more += [one.arg for one in given.kwonlyargs]
    more += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return tuple((names if static else names[1:]) + more)


def _is_abstract(method: _Function) -> bool:
    names = [ast.unparse(decorator) for decorator in method.decorator_list]
    return any(name.rpartition(".")[2] == "abstractmethod" for name in names)


def surface_of(content: Mapping[str, Any]) -> Surface:
    """A surface from what `asdict` and JSON made of it."""
    classes = tuple(
        Expected(
            module=one["module"],
            name=one["name"],
            methods={name: tuple(wanted) for name, wanted in one["methods"].items()},
            fields=tuple(one["fields"]),
            sealed=one["sealed"],
        )
        for one in content["classes"]
    )
    return Surface(
        package=content["package"],
        distributions=tuple(content["distributions"]),
        tested=tuple(content["tested"]),
        classes=classes,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(examine(surface_of(json.load(sys.stdin))))))
