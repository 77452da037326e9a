"""Pinned memory: what this host can carry of it, and pinning it in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from pagoda.machine.buffers import address
from pagoda.machine.cuda import Cuda, CudaError
from pagoda.machine.limits import (
    CAP_IPC_LOCK,
    UNLIMITED,
    CgroupLimit,
    cgroup_limits,
    has_capability,
    meminfo,
    resource_limit,
)
from pagoda.machine.tree import HostTree

__all__ = ["CHUNK_BYTES", "Bound", "Registration", "lock_bound", "memory_bounds"]

# Drivers refuse one call for a whole pool where an I/O memory management unit, a bounce buffer
# or WSL caps a call; no known ceiling is below this.
CHUNK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A limit on memory: which, its value, what is left below it, and how to raise it."""

    name: str
    limit_bytes: int
    free_bytes: int
    remedy: str


def memory_bounds(tree: HostTree) -> list[Bound]:
    """What bounds memory that is about to be filled: control groups and free memory."""
    found = [
        Bound(
            name=f"the control group's memory limit ({group.path})",
            limit_bytes=group.limit_bytes,
            free_bytes=max(0, group.limit_bytes - _kept_bytes(tree, group)),
            remedy="raise the group's limit (--memory, resources.limits.memory)",
        )
        for group in cgroup_limits(tree)
        if group.limit_bytes < UNLIMITED
    ]
    available = meminfo(tree).get("MemAvailable")
    if available is not None:
        found.append(
            Bound(
                name="available memory (MemAvailable)",
                limit_bytes=available,
                free_bytes=available,
                remedy="stop what else uses memory here",
            )
        )
    return found


def lock_bound(tree: HostTree) -> Bound | None:
    """The limit of locked memory; None without one, or with the capability that lifts it."""
    limit = resource_limit(tree, "Max locked memory")
    if limit is None or limit.soft >= UNLIMITED or has_capability(tree, CAP_IPC_LOCK):
        return None
    return Bound(
        name="the limit of locked memory (RLIMIT_MEMLOCK)",
        limit_bytes=limit.soft,
        free_bytes=limit.soft,
        remedy="raise it (ulimit -l unlimited, --ulimit memlock=-1, LimitMEMLOCK=infinity)",
    )


def _kept_bytes(tree: HostTree, group: CgroupLimit) -> int:
    """What a group uses and the kernel would not give back at once: all but cold file pages."""
    stat = tree.text(f"{group.path.lstrip('/').rpartition('/')[0]}/memory.stat") or ""
    rows = dict(line.split(maxsplit=1) for line in stat.splitlines() if " " in line)
    cold = rows.get("total_inactive_file", rows.get("inactive_file", "0"))
    return max(0, (group.used_bytes or 0) - (int(cold) if cold.isdecimal() else 0))


class Registration:
    """One stretch of memory, pinned from the start until `release`.

    `memory` starts on a page. No unit of `unit_bytes` (whole pages) lies in two chunks, because a
    device copies from one registered chunk at a time. Raises CudaError, and nothing stays pinned.
    """

    def __init__(
        self, cuda: Cuda, memory: memoryview, *, unit_bytes: int, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self._cuda = cuda
        self._pinned: list[int] = []
        try:
            for start, size_bytes in _chunks(memory, unit_bytes, chunk_bytes):
                cuda.register(start, size_bytes)
                self._pinned.append(start)
        except CudaError:
            self.release()
            raise

    @property
    def chunks(self) -> int:
        """How many calls it took."""
        return len(self._pinned)

    def release(self) -> None:
        """Unpin; safe to call twice. A driver that is gone has unpinned already."""
        while self._pinned:
            with suppress(CudaError):
                self._cuda.unregister(self._pinned.pop())


def _chunks(memory: memoryview, unit_bytes: int, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """(address, size) of pieces of whole units, each of at most `chunk_bytes` or one unit."""
    step = max(1, chunk_bytes // unit_bytes) * unit_bytes
    start = address(memory)
    for offset in range(0, len(memory), step):
        yield start + offset, min(step, len(memory) - offset)
