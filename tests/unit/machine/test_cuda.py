"""The CUDA driver through ctypes: errors by name, contexts left as they were."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest
from tests.support.cuda import FakeDriver

from pagoda.machine.cuda import Cuda, CudaError

# A libcuda that notes its arguments as C sees them: an address cut to 32 bits shows.
SOURCE = """
#include <stddef.h>
#include <stdint.h>
uint64_t seen_address, seen_size; uint32_t seen_flags; void *current;
int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal + 7; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device)
{ *context = (void *)(0x100000000ull + device); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device == 7 ? 0 : 1; }
int cuCtxPushCurrent_v2(void *context) { current = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = 0; return 0; }
int cuMemHostRegister_v2(void *p, size_t size, unsigned flags)
{ if (current != (void *)0x100000007ull) return 201;
  seen_address = (uint64_t)p; seen_size = size; seen_flags = flags; return 0; }
int cuMemHostUnregister(void *p) { return (uint64_t)p == seen_address ? 0 : 713; }
int cuGetErrorName(int code, const char **name)
{ if (code == 713) { *name = "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"; return 0; } return 1; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The library above, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("cc: not on PATH")
    folder = tmp_path_factory.mktemp("libcuda")
    (folder / "cuda.c").write_text(SOURCE)
    built = folder / "libcuda.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(built), str(folder / "cuda.c")]
    subprocess.run(command, check=True, timeout=60)
    return ctypes.CDLL(str(built))


def number(library: ctypes.CDLL, name: str) -> int:
    """A 64-bit variable of the library."""
    return ctypes.c_uint64.in_dll(library, name).value


def test_addresses_and_sizes_arrive_whole(library: ctypes.CDLL) -> None:
    """Beyond 32 bits, in the device's primary context, pinned for every context."""
    cuda = Cuda(library)
    cuda.register(0x7F1234567000, 6 << 30)
    assert number(library, "seen_address") == 0x7F1234567000
    assert number(library, "seen_size") == 6 << 30
    assert ctypes.c_uint32.in_dll(library, "seen_flags").value == 1
    cuda.unregister(0x7F1234567000)
    cuda.close()


def test_an_error_has_its_name(library: ctypes.CDLL) -> None:
    """The driver's own word for it, and the call."""
    with pytest.raises(CudaError, match=r"cuMemHostUnregister.*NOT_REGISTERED") as caught:
        Cuda(library).unregister(4096)
    assert caught.value.name == "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"


def test_no_device_is_an_error() -> None:
    """A driver without a device cannot pin."""
    with pytest.raises(CudaError, match="NO_DEVICE"):
        Cuda(FakeDriver(devices=0))


def test_a_failed_call_leaves_no_context_current() -> None:
    """What the calling thread worked in before is current again, and the context given back."""
    driver = FakeDriver(limit_bytes=0)
    cuda = Cuda(driver)
    with pytest.raises(CudaError):
        cuda.register(4096, 4096)
    assert driver.pushed == 0
    cuda.close()
    assert driver.retained == 0
