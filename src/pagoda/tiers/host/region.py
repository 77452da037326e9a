"""The host tier's memory: one region of slots, asked for and pinned once at the start."""

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

    It has `count` units of `unit_bytes` (whole pages), none of which is cut in two by a chunk of
    the registration. Raises CapacityError naming the limit that cannot carry it, its value and what
    to do; nothing is kept then.
    """

    def __init__(
        self,
        count: int,
        unit_bytes: int,
        *,
        cuda: Cuda | None = None,
        tree: HostTree | None = None,
    ) -> None:
        tree = HostTree() if tree is None else tree
        size_bytes = count * unit_bytes
        _refuse_beyond(memory_bounds(tree), size_bytes)
        self._buffer = _mapped(size_bytes)
        self.memory = memoryview(self._buffer)[:size_bytes]
        self._registration: Registration | None = None
        if cuda is not None and size_bytes:
            self._pin(cuda, unit_bytes, tree)

    @property
    def pinned(self) -> bool:
        """Whether devices copy from it directly."""
        return self._registration is not None

    def close(self) -> None:
        """Unpin it. The memory itself goes with its last view."""
        if self._registration is not None:
            self._registration.release()
            self._registration = None

    def _pin(self, cuda: Cuda, unit_bytes: int, tree: HostTree) -> None:
        try:
            self._registration = Registration(cuda, self.memory, unit_bytes=unit_bytes)
        except CudaError as error:
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
