"""The C library's heap."""

from __future__ import annotations

import ctypes


def trim_heap() -> bool:
    """Give free pages of the heap back to the system; False where the C library cannot.

    Loading a model leaves tens of megabytes behind that no later allocation needs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is None:
        return False
    trim(0)
    return True
