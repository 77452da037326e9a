"""The kernels in C, from the optional extension `pagoda._native`."""

from __future__ import annotations

from pagoda.engine.kernels import KernelContext, Kernels


def available() -> bool:
    return False


def NativeKernels(context: KernelContext) -> Kernels:  # noqa: N802
    raise RuntimeError("the C kernels were not built")
