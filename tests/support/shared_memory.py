"""Files in shared memory that processes have mapped: those of killed ones are left to remove."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_SHARED = "/dev/shm/"


def mapped_by_group(group: int) -> set[Path]:
    """What the processes of a process group have mapped of /dev/shm."""
    found: set[Path] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                found |= _mapped(process / "maps")
    return found


def _mapped(maps: Path) -> set[Path]:
    paths = (line.rpartition(" ")[2] for line in maps.read_text().splitlines())
    return {Path(path) for path in paths if path.startswith(_SHARED)}
