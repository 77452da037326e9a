"""One check's answer, and how answers are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["GIB", "MIB", "Check", "Status", "ready", "shape", "sized", "worst"]

MIB = 1 << 20
GIB = 1 << 30

Status = Literal["pass", "warn", "fail", "unknown"]
_ORDER: tuple[Status, ...] = ("pass", "unknown", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Check:
    """What was found: a status with its reason, a command that confirms it, and a remedy.

    "unknown" means that a fact is missing and the reason says which; it never blocks.
    """

    id: str
    status: Status
    reason: str
    confirm: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """The documented fields, all text."""
        return {
            "id": self.id,
            "status": self.status,
            "reason": self.reason,
            "confirm": self.confirm,
            "remedy": self.remedy,
        }


def shape(checks: Sequence[Check]) -> dict[str, Any]:
    """The stable shape for machines."""
    return {"checks": [check.as_json() for check in checks]}


def ready(checks: Sequence[Check]) -> bool:
    """Tell whether no check failed."""
    return all(check.status != "fail" for check in checks)


def worst(statuses: Sequence[Status]) -> Status:
    """The most severe of several; "pass" of none."""
    return max(statuses, key=_ORDER.index, default="pass")


def sized(size_bytes: float) -> str:
    """A size in words, binary units."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.0f} B"
