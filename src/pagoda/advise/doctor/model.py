"""The doctor's vocabulary: signs are read, events are seen, causes are concluded.

A *sign* is one thing a line can say. An *event* is one line that said it. A *cause* is
a rule over signs: which must be there, which must not, and what follows for the reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .facts import Facts

__all__ = ["Cause", "Check", "Event", "Family", "Line", "Role", "Sign"]

Role = Literal["root", "symptom", "noise", "context", "settings"]


@dataclass(frozen=True, slots=True)
class Line:
    """One log line after normalisation.

    `clock` is "wall" for calendar stamps (seconds since the start of a leap year, the
    year dropped, because half of the formats omit it) and "boot" for kernel stamps.
    """

    text: str
    message: str
    prefixed: bool = False
    level: str = ""
    rank: int | None = None
    node: str = ""
    remote: bool = False
    logger: str = ""
    time_s: float | None = None
    clock: str = ""
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing a line can say.

    `needles` are lower-case literals of at least five bytes; a line without any of them
    cannot match, which is what lets a gigabyte be read quickly. `pattern` decides, is
    searched without regard to case and must be linear: no nested or adjacent unbounded
    repeats. `levels`, when given, are the log levels that the line must carry; a root in
    a line that calls itself INFO or DEBUG is not believed unless `any_level` is set. A line
    that prints settings (role "settings") names many faults and has none. A `passing`
    symptom is forgotten when the engine makes progress after it.
    """

    id: str
    needles: tuple[str, ...]
    pattern: str = ""
    role: Role = "root"
    title: str = ""
    collect: str = ""
    levels: tuple[str, ...] = ()
    any_level: bool = False
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """A sign seen in a line: where, when and on which rank and node."""

    sign: str
    file: str
    line: int
    text: str
    rank: int | None = None
    node: str = ""
    time_s: float | None = None
    weight: int = 1
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """What a rule's own function adds: a detail for the sentence, a confidence (0 to 1)."""

    detail: str = ""
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule: signs in, a diagnosis out.

    It holds when one of `any` and all of `every` were seen, none of `none` was, and
    `check`, if there is one, does not answer None. `depth` ranks how near to the ground
    a cause lies (100 hardware … 0 information): a deeper one explains a shallower one.
    `explains` names causes that this one makes a mere consequence, whatever their depth.
    """

    id: str
    kind: str
    sentence: str
    remedy: str
    will_not_help: tuple[tuple[str, str], ...]
    collect: tuple[str, ...]
    confidence: float
    reference: str
    depth: int
    any: tuple[str, ...] = ()
    every: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    check: Callable[[Facts], Check | None] | None = None
    role: Literal["root", "symptom"] = "root"
    explains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """Signs and causes of one subject, kept in one file."""

    name: str
    title: str
    signs: tuple[Sign, ...]
    causes: tuple[Cause, ...]
