"""Checks of spill directories: O_DIRECT, alignment, space, file system, wear, and owners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pagoda.advise.preflight.check import GIB, Check, Status, sized, worst
from pagoda.advise.preflight.need import Need
from pagoda.machine.spill import SpillFacts

__all__ = ["drive_checks"]

_NONE = "say --spill DIR to check where blocks will be spilled"
_FREE_SHARE = 0.05
_SLOT_BYTES = 4096
_LOCAL = {"ext4", "xfs", "ext3", "ext2", "f2fs"}
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "lustre",
    "fuse.s3fs",
    "9p",
    "virtiofs",
    "beegfs",
}

_Verdict = tuple[Status, str, str]


def drive_checks(spills: Sequence[SpillFacts], need: Need) -> Iterator[Check]:
    """All checks of the spill directories; each is unknown when none was given."""
    yield _each(
        "drive-direct", spills, _direct, "dd if=/dev/zero of=DIR/probe bs=4k count=1 oflag=direct"
    )
    yield _each("drive-alignment", spills, _alignment, "cat /sys/block/*/queue/logical_block_size")
    yield _each("drive-space", spills, lambda facts: _space(facts, spills, need), "df -h DIR")
    yield _each("drive-filesystem", spills, _file_system, "findmnt -T DIR")
    yield _each("drive-wear", spills, _wear, "smartctl -A /dev/nvme0n1   # as root")
    yield _each("drive-owner", spills, _owner, "cat DIR/lock; ls -ld DIR; grep -c . /proc/locks")
    yield _shared(spills)


def _each(
    name: str, spills: Sequence[SpillFacts], judge: Callable[[SpillFacts], _Verdict], confirm: str
) -> Check:
    """Judge every directory and answer with the worst of them."""
    if not spills:
        return Check(name, "unknown", _NONE, confirm)
    verdicts: list[_Verdict] = [
        (
            "fail",
            f"{facts.path} {facts.problem}",
            "make the directory and give it to the engine's user",
        )
        if facts.problem
        else judge(facts)
        for facts in spills
    ]
    status = worst([verdict[0] for verdict in verdicts])
    shown = [verdict for verdict in verdicts if verdict[0] == status]
    reason = "; ".join(verdict[1] for verdict in shown)
    return Check(name, status, reason, confirm, shown[0][2])


def _direct(facts: SpillFacts) -> _Verdict:
    if facts.direct is None:
        return "unknown", f"{facts.path} was not probed", ""
    if facts.direct == "works":
        return "pass", f"{facts.path}: a 1 MiB file was written and read back through O_DIRECT", ""
    reason = f"{facts.path}: {facts.direct}; reads and writes would go through the page cache"
    return (
        "fail",
        reason,
        "use ext4 or XFS on a local drive (not tmpfs, overlay or a network mount)",
    )


def _alignment(facts: SpillFacts) -> _Verdict:
    if facts.sector_bytes is None:
        return "unknown", f"{facts.path}: the drive's sector size cannot be read", ""
    if _SLOT_BYTES % facts.sector_bytes:
        reason = f"{facts.path}: sectors of {facts.sector_bytes} B do not divide slots of 4 KiB"
        return "fail", reason, "use a drive with sectors of 512 B or 4 KiB"
    return "pass", f"{facts.path}: sectors of {facts.sector_bytes} B divide slots of 4 KiB", ""


def _space(facts: SpillFacts, spills: Sequence[SpillFacts], need: Need) -> _Verdict:
    if facts.free_bytes is None or not facts.size_bytes:
        return "unknown", f"{facts.path}: free space cannot be read", ""
    together = sum(other.device == facts.device for other in spills) if facts.device else 1
    wanted = need.spill_bytes * together
    has = f"{facts.path}: {sized(facts.free_bytes)} free of {sized(facts.size_bytes)}"
    remedy = "free space, spill less, or choose another drive"
    if wanted and facts.free_bytes < wanted:
        several = f" by the {together} directories on its file system" if together > 1 else ""
        return "fail", f"{has}, {sized(wanted)} are wanted{several}", remedy
    if facts.free_bytes < GIB:
        return "fail", f"{has}: nothing worth a drive tier fits", remedy
    if facts.free_bytes - wanted < facts.size_bytes * _FREE_SHARE:
        return (
            "warn",
            f"{has}: under {_FREE_SHARE:.0%} will be left, drives slow down there",
            remedy,
        )
    return "pass", has, ""


def _file_system(facts: SpillFacts) -> _Verdict:
    kind = facts.file_system
    if kind is None:
        return "unknown", f"{facts.path}: its mount cannot be found", ""
    if "ro" in facts.options and "rw" not in facts.options:
        return "fail", f"{facts.path} lies on a read-only {kind}", "mount it rw"
    if kind in ("tmpfs", "ramfs"):
        reason = f"{facts.path} lies on {kind}: that is host memory, not a drive"
        return "fail", reason, "use a directory on an NVMe drive"
    if kind in _NETWORK or kind.startswith("fuse"):
        reason = f"{facts.path} lies on {kind}: a network or user-space file system is not fast"
        return "warn", reason, "use a directory on a local drive"
    return _options(facts, kind)


def _options(facts: SpillFacts, kind: str) -> _Verdict:
    if kind == "overlay":
        reason = f"{facts.path} lies on overlay: the container's own layer, gone with the container"
        return "warn", reason, "mount a host directory or volume there"
    if kind not in _LOCAL:
        reason = f"{facts.path} lies on {kind}: copy-on-write or unusual, slabs fragment there"
        return "warn", reason, "prefer ext4 or XFS; on btrfs set chattr +C, on ZFS direct=always"
    costly = sorted({"sync", "dirsync", "data=journal", "discard"} & set(facts.options))
    if costly:
        reason = f"{facts.path} ({kind}) is mounted with {', '.join(costly)}, which costs writes"
        return "warn", reason, "remount without; run fstrim from a timer in place of discard"
    if facts.rotational:
        return "warn", f"{facts.path} lies on a rotating disk", "use an NVMe drive"
    return "pass", f"{facts.path} lies on {kind}", ""


def _wear(facts: SpillFacts) -> _Verdict:
    if facts.wear is None:
        return "unknown", f"{facts.path}: the drive's wear needs smartctl and root", ""
    wear = facts.wear
    has = f"{facts.path}: {wear.used_percent}% of the drive's life is used"
    if wear.warning or (wear.spare_percent is not None and wear.spare_percent < 10):
        return "fail", f"{has}, and it warns (spare {wear.spare_percent}%)", "replace the drive"
    if wear.used_percent >= 80:
        return "warn", has, "set a lower write budget, or replace the drive"
    return "pass", has, ""


def _owner(facts: SpillFacts) -> _Verdict:
    if facts.locks:
        reason = f"{facts.path}: a running process holds {facts.locks[0]}"
        return "fail", reason, "give each engine a directory of its own, or stop that one"
    if facts.foreign:
        reason = f"{facts.path} also holds files of {', '.join(facts.foreign)}"
        return "warn", reason, "give each store a directory of its own"
    if facts.mode is not None and facts.mode & 0o002:
        reason = f"{facts.path} may be written by everyone (mode {facts.mode:o})"
        return "warn", reason, f"chmod 700 {facts.path}"
    return "pass", f"{facts.path}: nobody else holds it", ""


def _shared(spills: Sequence[SpillFacts]) -> Check:
    """Directories that are one and the same, or lie in one another, or on one drive."""
    confirm = "realpath DIR…; findmnt -T DIR"
    if not spills:
        return Check("drive-shared", "unknown", _NONE, confirm)
    for k, one in enumerate(spills):
        for other in spills[k + 1 :]:
            left, right = Path(one.real_path), Path(other.real_path)
            if left.is_relative_to(right) or right.is_relative_to(left):
                reason = (
                    f"{one.path} and {other.path} are the same directory, or one holds the other"
                )
                remedy = "give each engine a directory of its own"
                return Check("drive-shared", "fail", reason, confirm, remedy)
    devices = [facts.device for facts in spills if facts.device]
    if len(set(devices)) < len(devices):
        reason = "several spill directories lie on one file system: they share its speed and wear"
        return Check("drive-shared", "warn", reason, confirm, "one drive for each directory")
    count = "1 directory" if len(spills) == 1 else f"{len(spills)} directories"
    return Check("drive-shared", "pass", f"{count}, none shared", confirm)
