"""A measured figure beside its goal. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured, what was wanted, and whether it was met.

    `met` None: not judged, because the run was a quick one or the figure only informs.
    `detail` holds what the value was made of.
    """

    name: str
    value: float | str | None
    unit: str
    goal: str
    met: bool | None
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """For people."""
        return {True: "met", False: "NOT MET", None: "not judged"}[self.met]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one part of a bench found: figures with goals, and all measured rows."""

    figures: list[Figure]
    rows: list[dict[str, Any]]
