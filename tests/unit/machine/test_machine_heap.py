"""Giving heap pages back."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from pagoda.machine.heap import trim_heap


def test_freed_memory_goes_back_to_the_system() -> None:
    """Many small freed pieces below a live one stay resident until the heap is trimmed."""
    status = Path("/proc/self/status")
    if not hasattr(ctypes.CDLL(None), "malloc_trim") or not status.exists():
        pytest.skip("glibc and /proc: not on this system")
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.calloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    pieces = [libc.calloc(1, 64 << 10) for _ in range(512)]  # 32 MiB, below the mmap threshold
    live = libc.malloc(64)
    for piece in pieces:
        libc.free(piece)
    before = _resident_kib(status)
    assert trim_heap()
    assert before - _resident_kib(status) > 16 << 10
    libc.free(live)


def _resident_kib(status: Path) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])
