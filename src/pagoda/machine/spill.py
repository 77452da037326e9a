"""Facts of a spill directory: its file system and drive, and whether O_DIRECT really works.

File systems may accept the flag and then refuse, or buffer, the I/O; so a probe file is
written and read back through it, and removed. Nothing else in the directory is touched.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagoda.machine.commands import capture
from pagoda.machine.mounts import Mount, mount_of, mounts
from pagoda.machine.tree import HostTree

__all__ = ["SpillFacts", "Wear", "drive_of", "locked_files", "spill_facts"]

PROBE_BYTES = 1 << 20
_ALIGNMENT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Wear:
    """A drive's own account: life used up and spare left, in percent, and its warning bits."""

    used_percent: int
    spare_percent: int | None
    warning: int


@dataclass(frozen=True, slots=True)
class SpillFacts:
    """One spill directory; None where a fact cannot be had, `problem` where nothing could.

    `direct` is "works", or the reason why O_DIRECT does not.
    """

    path: str
    real_path: str
    problem: str = ""
    device: str = ""
    file_system: str | None = None
    options: tuple[str, ...] = ()
    drive: str | None = None
    rotational: bool | None = None
    sector_bytes: int | None = None
    size_bytes: int | None = None
    free_bytes: int | None = None
    mode: int | None = None
    direct: str | None = None
    wear: Wear | None = None
    locks: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def as_json(self) -> str:
        """The facts as one line, for a captured tree."""
        return json.dumps(asdict(self), sort_keys=True)


def facts_from_json(text: str) -> SpillFacts:
    """Read what as_json wrote; raises ValueError for anything else."""
    raw: Any = json.loads(text)
    if not isinstance(raw, Mapping):
        raise ValueError("spill facts are a JSON object")  # noqa: TRY004 - bad text, not a bug
    known = {key: value for key, value in raw.items() if key in SpillFacts.__slots__}
    for name in ("options", "locks", "foreign"):
        known[name] = tuple(map(str, known.get(name) or ()))
    wear = known.get("wear")
    known["wear"] = Wear(**wear) if isinstance(wear, dict) else None
    try:
        return SpillFacts(**known)
    except TypeError as error:
        raise ValueError(f"spill facts lack a field: {error}") from error


def spill_facts(tree: HostTree, directory: Path) -> SpillFacts:
    """Look at a directory of this host, and probe it with a file of 1 MiB that is removed."""
    real = Path(os.path.realpath(directory))
    try:
        state, space = real.stat(), os.statvfs(real)
    except OSError as error:
        return SpillFacts(str(directory), str(real), problem=error.strerror or "cannot be read")
    if not real.is_dir():
        return SpillFacts(str(directory), str(real), problem="is not a directory")
    device = f"{os.major(state.st_dev)}:{os.minor(state.st_dev)}"
    mount = mount_of(mounts(tree), real) or Mount(device, "", "", frozenset(), "")
    drive = drive_of(tree, device, mount)
    return SpillFacts(
        path=str(directory),
        real_path=str(real),
        device=device,
        file_system=mount.kind or None,
        options=tuple(sorted(mount.options)),
        drive=drive,
        rotational=_flag(tree, drive, "rotational"),
        sector_bytes=_queue(tree, drive, "logical_block_size"),
        size_bytes=space.f_blocks * space.f_frsize,
        free_bytes=space.f_bavail * space.f_frsize,
        mode=state.st_mode & 0o7777,
        direct=probe_direct(real),
        wear=_wear(drive),
        locks=locked_files(tree, real),
        foreign=_foreign(real),
    )


def probe_direct(directory: Path) -> str:
    """Write and read back a file through O_DIRECT; "works", or what failed."""
    if not hasattr(os, "O_DIRECT"):
        return "this platform has no O_DIRECT"
    try:
        fd, name = tempfile.mkstemp(prefix=".pagoda-probe-", dir=directory)
    except OSError as error:
        return f"cannot create a file: {error.strerror}"
    os.close(fd)
    try:
        return _direct_round_trip(name)
    except OSError as error:
        return f"O_DIRECT is refused: {error.strerror}"
    finally:
        Path(name).unlink(missing_ok=True)


def _direct_round_trip(name: str) -> str:
    fd = os.open(name, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, PROBE_BYTES) as out, mmap.mmap(-1, PROBE_BYTES) as back:
            out[:] = bytes(range(256)) * (PROBE_BYTES // 256)
            written = os.pwritev(fd, [out], 0)
            os.fdatasync(fd)
            read = os.preadv(fd, [back], 0)
            if written != PROBE_BYTES or read != PROBE_BYTES:
                return f"O_DIRECT moved {written} and {read} of {PROBE_BYTES} bytes"
            if back[:] != out[:]:
                return "O_DIRECT read back other bytes than were written"
            short = os.preadv(fd, [memoryview(back)[:_ALIGNMENT_BYTES]], _ALIGNMENT_BYTES)
            return "works" if short == _ALIGNMENT_BYTES else "O_DIRECT cannot read 4 KiB alone"
    finally:
        os.close(fd)


def drive_of(tree: HostTree, device: str, mount: Mount) -> str | None:
    """The whole drive's name (nvme0n1) behind a device number; None for network file systems."""
    link = tree.root / "sys/dev/block" / device
    try:
        parts = link.resolve(strict=True).parts
    except OSError:
        name = Path(mount.source).name
        return (
            name
            if mount.source.startswith("/dev/") and _queue(tree, name, "rotational") is not None
            else None
        )
    return next((part for part in reversed(parts) if part in tree.names("sys/block")), None)


def _queue(tree: HostTree, drive: str | None, name: str) -> int | None:
    return None if drive is None else tree.number(f"sys/block/{drive}/queue/{name}")


def _flag(tree: HostTree, drive: str | None, name: str) -> bool | None:
    value = _queue(tree, drive, name)
    return None if value is None else bool(value)


def _wear(drive: str | None) -> Wear | None:
    """What the drive says of itself, through smartctl (which needs root); None without it."""
    if drive is None or not re.fullmatch(r"[a-z0-9]+", drive):
        return None
    taken = capture(["smartctl", "-j", "-A", f"/dev/{drive}"])
    try:
        log = json.loads(taken.text)["nvme_smart_health_information_log"]
        return Wear(
            int(log["percentage_used"]), int(log["available_spare"]), int(log["critical_warning"])
        )
    except (ValueError, KeyError, TypeError):
        return None


def locked_files(tree: HostTree, directory: Path) -> tuple[str, ...]:
    """Files of a directory that some process holds a lock on, by name (from /proc/locks)."""
    held = {
        words[5]
        for line in (tree.text("proc/locks") or "").splitlines()
        if len(words := line.split()) > 5
    }
    found = []
    try:
        for entry in os.scandir(directory):
            state = entry.stat(follow_symlinks=False)
            key = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
            if key in held:
                found.append(entry.name)
    except OSError:
        return ()
    return tuple(sorted(found))


def _foreign(directory: Path) -> tuple[str, ...]:
    """Kinds of other stores' files that lie here, by suffix."""
    suffixes = {".pt": "LMCache", ".safetensors": "a model", ".bin": "SGLang's file store"}
    found: set[str] = set()
    try:
        for k, entry in enumerate(os.scandir(directory)):
            if k >= 1000:
                break
            found |= {suffixes[s] for s in suffixes if entry.name.endswith(s)}
    except OSError:
        return ()
    return tuple(sorted(found))
