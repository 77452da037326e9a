"""The machine and the software that a figure was measured on, for its report."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from pagoda._version import __version__

_PACKAGES = ("torch", "transformers", "numpy", "xxhash", "httpx")
_CPUINFO = Path("/proc/cpuinfo")


def facts() -> dict[str, Any]:
    """Versions, processor, processors usable, load average; nothing that names the host."""
    return {
        "pagoda": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cpus_usable": usable_cpus(),
        "load_1m": load_1m(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def usable_cpus() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_1m() -> float:
    """Runnable processes in the mean of the last minute; above 0 before a run, the machine was
    not quiet."""
    return round(os.getloadavg()[0], 2)


def _cpu_model() -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
