"""A measured figure beside its goal. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagoda.core.errors import SettingsError


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


def chosen_parts(only: Sequence[str], known: Collection[str]) -> Sequence[str]:
    """The parts of a bench to measure: those named, or all. Raises SettingsError."""
    for name in only:
        if name not in known:
            raise SettingsError(
                f"--only {name} is not a part of the bench",
                key="only",
                source="flag",
                remedy=f"choose from {', '.join(known)}",
            )
    return only or list(known)
