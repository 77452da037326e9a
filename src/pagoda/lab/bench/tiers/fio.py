"""fio as a side: the same file system, block size and depth, in a process of its own.

Its threads read or write one after the other (psync) with O_DIRECT, each in a part of the file
of its own; a write is followed by fdatasync, as the tier's is. In huge pages its buffers are
of the same kind as Pagoda's, which halves the drive's work on some machines: glibc is asked for
them (2.35 and newer), and the alignment makes the kernel give them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.core.errors import SettingsError
from pagoda.lab.bench.tiers.pairs import Moved

_TIMEOUT_S = 300.0
_LOOPS = 4  # its clock counts milliseconds: a pass must take hundreds of them


def find_fio() -> str:
    """The program. Raises SettingsError, which says how to install it."""
    found = shutil.which("fio")
    if found is None:
        raise SettingsError(
            "fio is not installed, and the drive's figures are against it",
            key="fio",
            source="PATH",
            remedy="apt-get install fio (Debian, Ubuntu), dnf install fio (Fedora)",
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Fio:
    """One comparison's fio: `size_bytes` of `path` in blocks, `depth` threads."""

    program: str
    path: Path
    size_bytes: int
    block_bytes: int
    depth: int
    huge_pages: bool = False

    def command(self, what: str) -> list[str]:
        """Its command line for "read" or "write"."""
        share = self.size_bytes // self.depth // self.block_bytes * self.block_bytes
        assert share, "fewer blocks than threads"
        arguments = {
            "name": "pagoda",
            "filename": str(self.path),
            "rw": what,
            "bs": self.block_bytes,
            "ioengine": "psync",
            "direct": 1,
            "numjobs": self.depth,
            "size": share,
            "offset_increment": share,
            "filesize": self.size_bytes,
            "loops": _LOOPS,
            "output-format": "json",
        }
        if what == "write":
            arguments["fdatasync"] = 1
        if self.huge_pages:
            arguments["iomem_align"] = "2m"
        flags = [f"--{name}={value}" for name, value in arguments.items()]
        return [self.program, "--thread", "--group_reporting", "--allow_file_create=1", *flags]

    def run(self, what: str) -> Moved:
        """One pass. Raises SettingsError with fio's words when it cannot."""
        environment = dict(os.environ)
        if self.huge_pages:
            environment["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        done = subprocess.run(
            self.command(what),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=environment,
            cwd=self.path.parent,
        )
        if done.returncode:
            raise SettingsError(
                f"fio failed: {(done.stderr or done.stdout).strip()[:300]}",
                key="directory",
                source="flag",
                remedy="name a directory whose file system has O_DIRECT",
            )
        return moved(done.stdout, what)


def moved(text: str, what: str) -> Moved:
    """What fio's JSON says of a pass; warnings may stand before it. Raises ValueError."""
    report: dict[str, Any] = json.loads(text[text.index("{") :])
    (job,) = report["jobs"]
    part = job[what]
    busy = (job["usr_cpu"] + job["sys_cpu"]) / 100
    return Moved(
        size_bytes=part["io_bytes"],
        wall_s=part["runtime"] / 1e3,
        cpu_s=busy * job["job_runtime"] / 1e3,
    )
