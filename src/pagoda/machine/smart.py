"""What the drive under a path says of its own health: `nvme smart-log` or `smartctl`.

Both need root or a rule that lets this user ask; neither need be installed. What cannot be
had is None, and `problem` says why when nothing could. Nothing is decided here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.machine.commands import capture
from pagoda.machine.mounts import Mount, mount_of, mounts
from pagoda.machine.spill import drive_of
from pagoda.machine.tree import HostTree

__all__ = ["DriveHealth", "drive_health", "parse_nvme", "parse_smartctl"]

_TIMEOUT_S = 5.0
# Bits of an NVMe drive's critical warning (NVM Express base specification, SMART log page).
_WARNINGS = {
    0x01: "spare below its threshold",
    0x02: "too hot or too cold",
    0x04: "reliability degraded",
    0x08: "read only",
    0x10: "volatile memory backup failed",
    0x20: "persistent memory region unreliable",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveHealth:
    """A drive's own account. Percentages of life used up (may pass 100) and of spare left;
    `warnings` in words, `passed` its overall verdict."""

    drive: str = ""
    used_percent: int | None = None
    spare_percent: int | None = None
    spare_threshold_percent: int | None = None
    media_errors: int | None = None
    warnings: tuple[str, ...] = ()
    passed: bool | None = None
    problem: str = ""


def drive_health(path: Path, tree: HostTree | None = None) -> DriveHealth:
    """Ask the drive that a file or directory lies on. Raises nothing; blocks for a few seconds,
    then the programs are killed."""
    tree = tree or HostTree()
    drive = _drive(tree, path)
    if drive is None:
        return DriveHealth(problem=f"no local drive is known under {path}")
    problems = []
    for argv, parse in _questions(drive):
        taken = capture(argv, timeout_s=_TIMEOUT_S)
        health = parse(taken.text, drive)  # smartctl's status is not 0 for a failing drive
        if not health.problem:
            return health
        problems.append(taken.problem or health.problem)
    return DriveHealth(drive=drive, problem="; ".join(problems))


def parse_nvme(text: str, drive: str = "") -> DriveHealth:
    """Read `nvme smart-log -o json`, of nvme-cli 1 or 2."""
    log = _object(text)
    warning = log.get("critical_warning")
    if isinstance(warning, Mapping):  # nvme-cli 2 with more detail
        warning = warning.get("value")
    used = _first(log, "percent_used", "percentage_used")
    if used is None and _number(warning) is None:
        return DriveHealth(drive=drive, problem="nvme printed no health information")
    return DriveHealth(
        drive=drive,
        used_percent=used,
        spare_percent=_first(log, "avail_spare", "available_spare"),
        spare_threshold_percent=_first(log, "spare_thresh", "available_spare_threshold"),
        media_errors=_first(log, "media_errors"),
        warnings=_words(_number(warning)),
    )


def parse_smartctl(text: str, drive: str = "") -> DriveHealth:
    """Read `smartctl -j -a`: of NVMe drives, and of SATA drives as far as it sums them up."""
    whole = _object(text)
    passed = _section(whole, "smart_status").get("passed")
    nvme = _section(whole, "nvme_smart_health_information_log")
    endurance = _section(whole, "endurance_used")
    spare = _section(whole, "spare_available")
    health = DriveHealth(
        drive=drive,
        used_percent=_first(nvme, "percentage_used", default=_first(endurance, "current_percent")),
        spare_percent=_first(nvme, "available_spare", default=_first(spare, "current_percent")),
        spare_threshold_percent=_first(
            nvme, "available_spare_threshold", default=_first(spare, "threshold_percent")
        ),
        media_errors=_first(nvme, "media_errors"),
        warnings=_words(_number(nvme.get("critical_warning"))),
        passed=passed if isinstance(passed, bool) else None,
    )
    if health == DriveHealth(drive=drive):
        return DriveHealth(drive=drive, problem="smartctl printed no health information")
    return health


def _questions(drive: str) -> Iterator[tuple[Sequence[str], Callable[[str, str], DriveHealth]]]:
    device = f"/dev/{drive}"
    if drive.startswith("nvme"):
        yield ("nvme", "smart-log", "-o", "json", device), parse_nvme
    yield ("smartctl", "-j", "-a", device), parse_smartctl


def _drive(tree: HostTree, path: Path) -> str | None:
    """The whole drive under a path; through device mappers when they have one below."""
    try:
        real = path.resolve(strict=True)
        number = real.stat().st_dev
    except OSError:
        return None
    device = f"{os.major(number)}:{os.minor(number)}"
    mount = mount_of(mounts(tree), real) or Mount(device, "", "", frozenset(), "")
    name = drive_of(tree, device, mount)
    for _ in range(8):
        below = tree.names(f"sys/block/{name}/slaves") if name else []
        if len(below) != 1:
            break
        name = _whole(tree, below[0])
    return name if name and re.fullmatch(r"[a-z]+[a-z0-9]*", name) else None


def _whole(tree: HostTree, partition: str) -> str:
    """The drive that a partition is of: a partition's directory lies within its drive's."""
    for drive in tree.names("sys/block"):
        if partition == drive or partition in tree.names(f"sys/block/{drive}"):
            return drive
    return partition


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}


def _section(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = whole.get(name)
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> int | None:
    """A whole number that is no nonsense; some versions print numbers as texts."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        value = int(value)
    ok = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if ok else None  # type: ignore[return-value]


def _first(section: Mapping[str, Any], *names: str, default: int | None = None) -> int | None:
    values = (_number(section.get(name)) for name in names)
    return next((value for value in values if value is not None), default)


def _words(warning: int | None) -> tuple[str, ...]:
    return tuple(words for bit, words in _WARNINGS.items() if (warning or 0) & bit)
