"""Giving heap pages back."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from pagoda.machine.heap import trim_heap

_PIECE_BYTES = 64 << 10


def test_freed_memory_goes_back_to_the_system() -> None:
    """Many small freed pieces below a live one stay resident until the heap is trimmed."""
    status = Path("/proc/self/status")
    if not hasattr(ctypes.CDLL(None), "malloc_trim") or not status.exists():
        pytest.skip("glibc and /proc: not on this system")
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    pieces = [libc.malloc(_PIECE_BYTES) for _ in range(512)]  # 32 MiB, below the mmap threshold
    for piece in pieces:
        ctypes.memset(piece, 1, _PIECE_BYTES)
    for piece in pieces[:-1]:  # the last one stays above them, or freeing would trim by itself
        libc.free(piece)
    before = _resident_kib(status)
    assert trim_heap()
    assert before - _resident_kib(status) > 16 << 10
    libc.free(pieces[-1])


def _resident_kib(status: Path) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])
