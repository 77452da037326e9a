"""A defect as a patch of the real code, applied in this process for a while.

The seam is a function. Its own source, with one piece of text replaced that must be there
exactly once, is compiled and put in place of the function's code, so that every reference
to the function runs it. Nothing in the product knows of it.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from pagoda.core.errors import PagodaError


class PatchFailed(PagodaError):
    """A defect's patch does not fit the code any more; `seam` names the place."""

    def __init__(self, message: str, *, seam: str) -> None:
        super().__init__(message, remedy="adapt the defect to the code, in lab/defects/catalogue")
        self.seam = seam


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A mistake that a programmer could have made at `seam` ("module:qualified.name"): `old`
    became `new`. `story` says what goes wrong, `rare` how many times the usual number of seeds
    it may take to show."""

    name: str
    seam: str
    old: str
    new: str
    story: str
    rare: int = 1


@contextmanager
def applied(defect: Defect) -> Iterator[None]:
    """Have the defect in the code inside. Raises PatchFailed."""
    function = _function(defect.seam)
    sound = function.__code__
    function.__code__ = _damaged(function, defect)
    try:
        yield
    finally:
        function.__code__ = sound


def check_fits(defect: Defect) -> None:
    """Raise PatchFailed when the defect cannot be put into the code as it is."""
    _damaged(_function(defect.seam), defect)


def _function(seam: str) -> FunctionType:
    module, _, path = seam.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = inspect.getattr_static(found, name)
    except (ImportError, AttributeError) as error:
        raise PatchFailed(f"{seam} is not there: {error}", seam=seam) from error
    if isinstance(found, property):
        found = found.fget
    found = inspect.unwrap(getattr(found, "__func__", found))
    if not isinstance(found, FunctionType):
        raise PatchFailed(f"{seam} is no function", seam=seam)
    return found


def _damaged(function: FunctionType, defect: Defect) -> CodeType:
    """The function's code with the defect in it, its line numbers as before."""
    source = textwrap.dedent(inspect.getsource(function))
    count = source.count(defect.old)
    if count != 1:
        raise PatchFailed(
            f"defect {defect.name!r}: its text is {count} times in {defect.seam}, not once",
            seam=defect.seam,
        )
    tree = ast.parse(source.replace(defect.old, defect.new))
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    flags = __future__.annotations.compiler_flag
    module = compile(tree, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    for constant in module.co_consts:
        if isinstance(constant, CodeType) and constant.co_name == function.__name__:
            if constant.co_freevars != function.__code__.co_freevars:
                break
            return constant.replace(co_qualname=function.__qualname__)
    raise PatchFailed(f"{defect.seam} cannot be compiled on its own", seam=defect.seam)
