"""The error tree as its docstring draws it."""

from __future__ import annotations

import inspect
import re

from pagoda.core import errors


def test_the_drawing_is_the_tree() -> None:
    """Every class stands in the drawing under its parent, and nothing else does."""
    drawn: dict[str, str] = {}
    parents: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│├└─ ]*)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            parents = [*parents[:depth], found[2]]
            drawn[found[2]] = parents[-2] if depth else "Exception"
    real = {
        name: value.__base__.__name__
        for name, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, Exception)
    }
    assert drawn == real
    assert sorted(errors.__all__) == sorted(real)


def test_an_error_tells_the_remedy() -> None:
    """What a person reads has both what is wrong and what to do."""
    error = errors.PagodaError("the slab is full", remedy="raise drive.capacity")
    assert str(error) == "the slab is full (raise drive.capacity)"
