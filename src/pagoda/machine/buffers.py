"""Page-aligned memory that belongs to nobody's heap."""

from __future__ import annotations

import mmap

import numpy as np


def aligned_buffer(size_bytes: int) -> mmap.mmap:
    """Zeroed anonymous memory of at least `size_bytes`, page-aligned, in huge pages if allowed.

    Private: shared anonymous memory gets no huge pages, and copying and computing on it then
    spends its time on address translation. Raises OSError, OverflowError or ValueError when
    the system cannot map that much.
    """
    size_bytes = max(size_bytes, mmap.PAGESIZE)
    buffer = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            buffer.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel built without transparent huge pages
            return buffer
    return buffer


def populate(buffer: mmap.mmap) -> None:
    """Have the system give all pages now, not at the first request that touches them."""
    np.frombuffer(buffer, dtype=np.uint8)[:: mmap.PAGESIZE] = 0


def address(view: memoryview) -> int:
    """Where a contiguous buffer starts in this process's memory."""
    return int(np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0])
