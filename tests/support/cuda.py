"""A CUDA driver that only keeps books, with the calls of libcuda that Pagoda makes."""

from __future__ import annotations

from typing import Any

_OUT_OF_MEMORY = 2
_NO_DEVICE = 100
_NOT_REGISTERED = 713
_NAMES = {
    _OUT_OF_MEMORY: b"CUDA_ERROR_OUT_OF_MEMORY",
    _NO_DEVICE: b"CUDA_ERROR_NO_DEVICE",
    _NOT_REGISTERED: b"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
}


class FakeDriver:
    """Functions as ctypes would call them. Pins at most `limit_bytes` in all; counts the
    contexts that are pushed and held."""

    def __init__(self, *, limit_bytes: int = 1 << 60, devices: int = 1) -> None:
        self.pinned: dict[int, int] = {}
        self.pushed = 0
        self.retained = 0
        self._limit_bytes = limit_bytes
        self._devices = devices

    def cuInit(self, flags: Any) -> int:
        return 0 if self._devices else _NO_DEVICE

    def cuDeviceGet(self, device: Any, ordinal: Any) -> int:
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        self.retained += 1
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device: Any) -> int:
        self.retained -= 1
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        self.pushed += 1
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        self.pushed -= 1
        return 0

    def cuMemHostRegister_v2(self, start: Any, size: Any, flags: Any) -> int:
        assert self.pushed == 1, "no context is current"
        if sum(self.pinned.values()) + size.value > self._limit_bytes:
            return _OUT_OF_MEMORY
        self.pinned[start.value] = size.value
        return 0

    def cuMemHostUnregister(self, start: Any) -> int:
        return 0 if self.pinned.pop(start.value, None) else _NOT_REGISTERED

    def cuGetErrorName(self, code: Any, name: Any) -> int:
        name._obj.value = _NAMES[code.value]
        return 0
