"""Pinning memory for GPUs: the CUDA driver's own library through ctypes.

The driver API, not the runtime: libcuda.so.1 is wherever a GPU can be used, while libcudart is
only where a toolkit or a framework brought one. Both work on the device's primary context, so
memory that is registered here is pinned for a framework in the same process, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Cuda", "CudaError", "find_cuda"]

_LIBRARY = "libcuda.so.1"
_PORTABLE = 1  # CU_MEMHOSTREGISTER_PORTABLE: pinned for every context of the process


class CudaError(RuntimeError):
    """A call of the CUDA driver failed: `call`, and the driver's name of the error."""

    def __init__(self, call: str, name: str) -> None:
        super().__init__(f"{call} failed: {name}")
        self.call = call
        self.name = name


class Cuda:
    """The calls that pin and unpin memory. Holds the first device's primary context.

    `library` is a loaded libcuda, or an object with the same functions. Raises CudaError when
    there is no device that works.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._call("cuInit", ctypes.c_uint(0))
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._device = device

    def register(self, address: int, size_bytes: int) -> None:
        """Pin whole pages from `address` on; raises CudaError."""
        with self._current():
            self._call(
                "cuMemHostRegister_v2",
                ctypes.c_void_p(address),
                ctypes.c_size_t(size_bytes),
                ctypes.c_uint(_PORTABLE),
            )

    def unregister(self, address: int) -> None:
        """Unpin what was registered at `address`; raises CudaError."""
        with self._current():
            self._call("cuMemHostUnregister", ctypes.c_void_p(address))

    def close(self) -> None:
        """Give the context back; raises CudaError."""
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """The calling thread works in the context, and afterwards in whichever it did before."""
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(name, self._name_of(code))

    def _name_of(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
        return text.value.decode() if text.value else f"error {code}"


def find_cuda() -> Cuda | None:
    """The driver of this machine's GPUs; None without a driver, or without a device it can use."""
    try:
        return Cuda(ctypes.CDLL(_LIBRARY))
    except (OSError, CudaError):
        return None
