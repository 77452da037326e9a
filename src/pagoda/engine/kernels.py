"""The steps of a layer that are not matrix products, as a port with two implementations.

`TorchKernels` needs nothing but torch; `native.NativeKernels` calls the C extension. Both
round where transformers' models round, so that either agrees with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from pagoda.engine.attention import attend_batch
from pagoda.engine.batch import Batch
from pagoda.engine.config import ModelConfig
from pagoda.engine.layout import BLOCK_TOKENS, BlockPool
from pagoda.engine.weights import LayerWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelContext:
    """What kernels are bound to: the model's shape, the pool and the rope tables
    [positions, head_dim / 2]."""

    config: ModelConfig
    pool: BlockPool
    cosines: torch.Tensor
    sines: torch.Tensor
    threads: int


class Kernels(Protocol):
    """The fused steps. `rows` is the padded number of rows, at least a batch's tokens."""

    @property
    def kernel_id(self) -> str:
        """Name of the arithmetic: equal names on equal machines, equal bits."""
        ...

    def add_norm(
        self, residual: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor
    ) -> torch.Tensor:
        """Add `delta` to `residual` [rows, hidden] in place; return its root-mean-square
        norm times `weight` [hidden], in a tensor valid until the next call."""
        ...

    def attention(
        self, qkv: torch.Tensor, index: int, layer: LayerWeights, batch: Batch
    ) -> torch.Tensor:
        """Rotate q and k of `qkv` [rows, (heads + 2 kv_heads) × head_dim] (which may be
        overwritten), store K and V in the pool, attend; returns [rows, heads × head_dim]."""
        ...

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """silu(gate) × up for gate_up [rows, 2 × inner], as [rows, inner]."""
        ...


class TorchKernels:
    """The port in plain torch."""

    kernel_id = "torch"

    def __init__(self, context: KernelContext) -> None:
        self._context = context

    def add_norm(
        self, residual: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor
    ) -> torch.Tensor:
        if delta is not None:
            residual.add_(delta)
        return self._norm(residual, weight)

    def _norm(self, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = rows.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._context.config.norm_eps)
        return weight * (wide * scale).to(rows.dtype)

    def attention(
        self, qkv: torch.Tensor, index: int, layer: LayerWeights, batch: Batch
    ) -> torch.Tensor:
        config = self._context.config
        sizes = [config.q_size, config.kv_size, config.kv_size]
        parts = torch.split(qkv[: batch.tokens], sizes, dim=1)
        q, k, v = (part.view(batch.tokens, -1, config.head_dim) for part in parts)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)
        positions = torch.from_numpy(batch.positions).long()
        self._store(index, self._rotate(k, positions), v, batch)
        mixed = attend_batch(self._rotate(q, positions), self._context.pool, index, batch)
        output = torch.zeros(len(qkv), config.q_size, dtype=qkv.dtype)
        output[: batch.tokens] = mixed.flatten(1)
        return output

    def _rotate(self, heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cosines = self._context.cosines[positions][:, None].repeat(1, 1, 2)
        sines = self._context.sines[positions][:, None].repeat(1, 1, 2)
        first, second = heads.chunk(2, dim=-1)
        return heads * cosines + torch.cat((-second, first), dim=-1) * sines

    def _store(self, index: int, k: torch.Tensor, v: torch.Tensor, batch: Batch) -> None:
        slots = torch.from_numpy(batch.slots).long()
        block, place = slots // BLOCK_TOKENS, slots % BLOCK_TOKENS
        keys, values = self._context.pool.keys(index), self._context.pool.values(index)
        if keys.dim() == 5:
            keys[block, :, :, place] = k.view(*k.shape[:-1], -1, 2)
            values[block, :, place // 2, :, place % 2] = v
        else:
            keys[block, :, :, place] = k
            values[block, :, place] = v

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up
