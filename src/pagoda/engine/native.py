"""The kernels in C, from the optional extension `pagoda._native`.

The extension checks values and bounds; that every address holds as many bytes as the sizes
say is this module's duty, kept by passing whole contiguous tensors of checked shapes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

import numpy as np
import torch

from pagoda.core import native
from pagoda.engine.batch import Batch
from pagoda.engine.kernels import KernelContext
from pagoda.engine.weights import LayerWeights

_DTYPES: Final = {torch.float32: 0, torch.bfloat16: 1}
_NAMES: Final = {0: "native", 1: "native-avx512", 2: "native-avx512bf16"}
_VECTOR_DIM: Final = 16  # the vector tile takes head sizes that are multiples of this


def extension() -> ModuleType | None:
    """The compiled module, or None where it was not built."""
    return native.TABLES


class NativeKernels:
    """The kernel port in C. `isa` (0 portable, 1 AVX-512, 2 AVX-512 with bf16 products)
    defaults to the best that this processor has. Raises RuntimeError without the extension."""

    def __init__(self, context: KernelContext, *, isa: int | None = None) -> None:
        module = extension()
        if module is None:
            raise RuntimeError("the extension pagoda._native is not built (is there a C compiler?)")
        config, layout = context.config, context.pool.layout
        self._module = module
        self._context = context
        self._dtype = _DTYPES[layout.dtype]
        best: int = module.best_isa(self._dtype) if config.head_dim % _VECTOR_DIM == 0 else 0
        self._isa = best if isa is None else min(isa, best)
        self._threads = context.threads
        self._cache = (
            self._dtype,
            config.heads,
            config.kv_heads,
            config.head_dim,
            context.pool.elements.data_ptr(),
            context.pool.num_blocks,
            layout.block_bytes,
        )
        self._buffers: dict[str, torch.Tensor] = {}
        self._prepared: tuple[Batch, tuple[int, ...], tuple[int, int]] | None = None

    @property
    def kernel_id(self) -> str:
        return _NAMES[self._isa]

    def add_norm(
        self, residual: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor
    ) -> torch.Tensor:
        rows, width = residual.shape
        assert residual.is_contiguous(), "rows must be contiguous"
        assert delta is None or (delta.shape == residual.shape and delta.is_contiguous())
        out = self._buffer("norm", rows, width)
        self._module.add_norm(
            self._dtype,
            self._threads,
            rows,
            width,
            residual.data_ptr(),
            0 if delta is None else delta.data_ptr(),
            weight.data_ptr(),
            self._context.config.norm_eps,
            out.data_ptr(),
        )
        return out

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        rows, width = gate_up.shape
        assert gate_up.is_contiguous(), "rows must be contiguous"
        out = self._buffer("silu", rows, width // 2)
        self._module.silu_mul(
            self._dtype, self._threads, rows, width // 2, gate_up.data_ptr(), out.data_ptr()
        )
        return out

    def attention(
        self, qkv: torch.Tensor, index: int, layer: LayerWeights, batch: Batch
    ) -> torch.Tensor:
        config, context = self._context.config, self._context
        assert qkv.is_contiguous(), "rows must be contiguous"
        assert qkv.shape[1] == config.q_size + 2 * config.kv_size, "qkv of another model"
        assert len(qkv) >= batch.tokens, "fewer rows than tokens"
        lists, places = self._prepare(batch)
        offset = index * context.pool.layout.layer_bytes
        out = self._buffer("mixed", len(qkv), config.q_size)
        self._module.rope_store(
            self._threads,
            *self._cache,
            offset,
            batch.tokens,
            qkv.data_ptr(),
            context.cosines.data_ptr(),
            context.sines.data_ptr(),
            len(context.cosines),
            0 if layer.q_norm is None else layer.q_norm.data_ptr(),
            0 if layer.k_norm is None else layer.k_norm.data_ptr(),
            config.norm_eps,
            *places,
        )
        self._module.attend(
            self._isa,
            self._threads,
            *self._cache,
            offset,
            *lists,
            batch.tokens,
            qkv.data_ptr(),
            out.data_ptr(),
        )
        return out

    def _buffer(self, name: str, rows: int, width: int) -> torch.Tensor:
        """Reused memory for a step's result; each is read before the step runs again."""
        held = self._buffers.get(name)
        if held is None or held.shape != (rows, width):
            held = torch.zeros(rows, width, dtype=self._context.pool.layout.dtype)
            self._buffers[name] = held
        return held

    def _prepare(self, batch: Batch) -> tuple[tuple[int, ...], tuple[int, int]]:
        """Addresses of a batch's lists, looked up once for all layers."""
        if self._prepared is None or self._prepared[0] is not batch:
            arrays = (batch.offsets, batch.starts, batch.table_offsets, batch.tables)
            for array in (*arrays, batch.positions, batch.slots):
                assert array.dtype == np.int32, "the kernels read int32 lists"
                assert array.flags.c_contiguous, "the kernels read contiguous lists"
            lists = (batch.segments, *(array.ctypes.data for array in arrays))
            self._prepared = (batch, lists, (batch.positions.ctypes.data, batch.slots.ctypes.data))
        return self._prepared[1], self._prepared[2]
