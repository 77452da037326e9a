"""Mounted file systems: which one a path lies on, its options, size and block device."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pagoda.machine.tree import HostTree

__all__ = ["SHM_POINT", "Mount", "mount_of", "mounts", "shm_size_bytes"]

SHM_POINT = "/dev/shm"  # noqa: S108 - where POSIX shared memory lives, not a temporary file


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: the device number, where it is mounted, type and options."""

    device: str
    point: str
    kind: str
    options: frozenset[str]
    source: str


def mounts(tree: HostTree) -> list[Mount]:
    """Every mount that this process sees, in mount order."""
    lines = (tree.text("proc/self/mountinfo") or "").splitlines()
    found = [mount for line in lines if (mount := _mountinfo(line)) is not None]
    return found or [m for line in _old_lines(tree) if (m := _old_mount(line)) is not None]


def _old_lines(tree: HostTree) -> list[str]:
    return (tree.text("proc/self/mounts") or tree.text("proc/mounts") or "").splitlines()


def _mountinfo(line: str) -> Mount | None:
    left, dash, right = line.partition(" - ")
    head, tail = left.split(), right.split()
    if not dash or len(head) < 6 or len(tail) < 2:
        return None
    options = {*head[5].split(","), *(tail[2].split(",") if len(tail) > 2 else ())}
    return Mount(head[2], _decoded(head[4]), tail[0], frozenset(options), tail[1])


def _old_mount(line: str) -> Mount | None:
    words = line.split()
    if len(words) < 4:
        return None
    return Mount("", _decoded(words[1]), words[2], frozenset(words[3].split(",")), words[0])


def _decoded(point: str) -> str:
    """The kernel writes blanks in paths as octal."""
    return re.sub(r"\\([0-7]{3})", lambda hit: chr(int(hit[1], 8)), point)


def mount_of(found: list[Mount], path: Path) -> Mount | None:
    """The mount that a path lies on: the longest mount point above it, the last one made."""
    above = [mount for mount in found if path.is_relative_to(mount.point)]
    return max(
        above, key=lambda mount: (len(Path(mount.point).parts), found.index(mount)), default=None
    )


def shm_size_bytes(tree: HostTree) -> int | None:
    """Size of /dev/shm: the mount's size option, else the live file system's, else None."""
    shm = [mount for mount in mounts(tree) if mount.point == SHM_POINT]
    for option in shm[-1].options if shm else ():
        hit = re.fullmatch(r"size=(\d+)([kmgKMG]?)", option)
        if hit is not None:
            return int(hit[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[hit[2].lower()]
    if not tree.live:
        return tree.number("pagoda/shm_bytes.txt")
    try:
        size = os.statvfs(SHM_POINT)
    except OSError:
        return None
    return size.f_blocks * size.f_frsize
