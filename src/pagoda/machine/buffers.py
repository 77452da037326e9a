"""Page-aligned memory that belongs to nobody's heap."""

from __future__ import annotations

import mmap

import numpy as np

HUGE_PAGE_BYTES = 2 << 20


def aligned_buffer(size_bytes: int) -> mmap.mmap:
    """Zeroed anonymous memory of at least `size_bytes`, page-aligned, in huge pages if allowed."""
    buffer = mmap.mmap(-1, max(size_bytes, mmap.PAGESIZE))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            buffer.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel built without transparent huge pages
            return buffer
    return buffer


def address(view: memoryview) -> int:
    """Where a contiguous buffer starts in this process's memory."""
    return int(np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0])
