"""The host tier's memory: one region, asked for and pinned once at the start.

staging   ring of STAGING_SLOT_BYTES each, for what travels (optional)
slots     slots × stride, one resident block each; a stride is whole pages
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

from pagoda.core.errors import CapacityError
from pagoda.machine.buffers import aligned_buffer
from pagoda.machine.cuda import Cuda, CudaError
from pagoda.machine.registration import Bound, Registration, lock_bound, memory_bounds
from pagoda.machine.tree import HostTree

TIER = "host"
_REMEDY = "lower host.capacity, or set it to 0 to leave the tier out"


class Region:
    """Page-aligned, zeroed memory in huge pages; pinned when `cuda` is given.

    No unit of the sizes in `units` (count, bytes; whole pages) is cut in two by a chunk of the
    registration. Raises CapacityError naming the limit that cannot carry it, its value and what
    to do; nothing is kept then.
    """

    def __init__(
        self,
        units: Sequence[tuple[int, int]],
        *,
        cuda: Cuda | None = None,
        tree: HostTree | None = None,
    ) -> None:
        tree = HostTree() if tree is None else tree
        size_bytes = sum(count * unit_bytes for count, unit_bytes in units)
        _refuse_beyond(memory_bounds(tree), size_bytes)
        self._buffer = _mapped(size_bytes)
        self.memory = memoryview(self._buffer)[:size_bytes]
        self._registrations: list[Registration] = []
        if cuda is not None:
            self._pin(cuda, units, tree)

    @property
    def pinned(self) -> bool:
        """Whether devices copy from it directly."""
        return bool(self._registrations)

    def close(self) -> None:
        """Unpin it. The memory itself goes with its last view."""
        for registration in self._registrations:
            registration.release()
        self._registrations.clear()

    def _pin(self, cuda: Cuda, units: Sequence[tuple[int, int]], tree: HostTree) -> None:
        start = 0
        for count, unit_bytes in units:
            part = self.memory[start : start + count * unit_bytes]
            start += len(part)
            try:
                if count:
                    self._registrations.append(Registration(cuda, part, unit_bytes=unit_bytes))
            except CudaError as error:
                self.close()
                raise _pin_refused(len(self.memory), error, lock_bound(tree)) from error


def _mapped(size_bytes: int) -> mmap.mmap:
    try:
        return aligned_buffer(size_bytes)
    except (OSError, OverflowError, ValueError) as error:
        raise CapacityError(
            f"this machine has no {size_bytes} bytes of memory for the host tier: {error}",
            tier=TIER,
            asked_bytes=size_bytes,
            limit_bytes=0,
            remedy=_REMEDY,
        ) from error


def _refuse_beyond(bounds: Sequence[Bound], size_bytes: int) -> None:
    for bound in bounds:
        if size_bytes > bound.free_bytes:
            raise _refused(bound, size_bytes)


def _refused(bound: Bound, size_bytes: int, why: str = "") -> CapacityError:
    return CapacityError(
        f"the host tier's {size_bytes} bytes do not fit {bound.name}: {bound.free_bytes} of "
        f"{bound.limit_bytes} bytes are free{why}",
        tier=TIER,
        asked_bytes=size_bytes,
        limit_bytes=bound.free_bytes,
        remedy=f"{bound.remedy}; or {_REMEDY}",
    )


def _pin_refused(size_bytes: int, error: CudaError, lock: Bound | None) -> CapacityError:
    """Drivers differ in whether they charge the lock limit, so it is named once they refuse."""
    if lock is not None and size_bytes > lock.free_bytes:
        return _refused(lock, size_bytes, f" ({error})")
    return CapacityError(
        f"the host tier's {size_bytes} bytes cannot be pinned: {error}",
        tier=TIER,
        asked_bytes=size_bytes,
        limit_bytes=0,
        remedy=f"{_REMEDY}, or set host.pinned to off",
    )
