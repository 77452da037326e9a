"""This process's memory."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Resident size now; where there is no /proc, the largest so far."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def trim_heap() -> bool:
    """Give free pages of the heap back to the system; False where the C library cannot.

    Loading a model leaves tens of megabytes behind that no later allocation needs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is None:
        return False
    trim(0)
    return True
