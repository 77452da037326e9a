"""Copies between "device" and host memory on a CPU, where SGLang has kernels for GPUs only.

The one change of SGLang's behaviour: its pools of host memory find these functions where its
kernels would be, and allocate memory that no CUDA driver knows. Named and called as SGLang names
and calls them. Rows are tokens; "lf" is a tensor per layer, "pf" one per page or token with all
layers in it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch


def install() -> None:
    """Bind the copies into SGLang's pools of host memory."""
    from sglang.srt.mem_cache.pool_host import base, mha, mla

    for copy in (
        transfer_kv_direct,
        transfer_kv_per_layer_direct_pf_lf,
        transfer_kv_all_layer_direct_lf_pf,
        transfer_kv_per_layer_pf_lf,
        transfer_kv_all_layer_lf_pf,
        transfer_kv_per_layer_mla_pf_lf,
        transfer_kv_all_layer_mla_lf_pf,
    ):
        for module in (mha, mla):
            setattr(module, copy.__name__, copy)
    _pin_nothing(base.HostKVCache)
    _attend_latently()


def _attend_latently() -> None:
    """Multi-head latent attention as it is kept: what computes it from heads is written for other
    ways to attend than the CPU's."""
    from sglang.srt.models.deepseek_common import attention_backend_handler as handlers

    handlers.AttentionBackendRegistry.register("torch_native", handlers._dispatch_mla_subtype)


def _pin_nothing(pool: Any) -> None:
    made = pool.__init__

    def unpinned(self: Any, **more: Any) -> None:
        made(self, **{**more, "pin_memory": False})

    pool.__init__ = unpinned


def transfer_kv_direct(
    *,
    src_layers: Sequence[torch.Tensor],
    dst_layers: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    for source, target in zip(src_layers, dst_layers, strict=True):
        target[dst_indices] = source[src_indices]


def transfer_kv_per_layer_direct_pf_lf(
    *,
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    pages = src_indices[::page_size] // page_size
    for source, target in zip(src_ptrs, dst_ptrs, strict=True):
        target[dst_indices] = source[pages, layer_id].reshape(-1, *target.shape[1:])


def transfer_kv_all_layer_direct_lf_pf(
    *,
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    pages = dst_indices[::page_size] // page_size
    layers = len(src_ptrs) // len(dst_ptrs)
    for which, target in enumerate(dst_ptrs):
        for layer, source in enumerate(src_ptrs[which * layers : (which + 1) * layers]):
            rows = source[src_indices]
            target[pages, layer] = rows.reshape(len(pages), page_size, *source.shape[1:])


def transfer_kv_per_layer_pf_lf(
    *,
    src_k: torch.Tensor,
    dst_k: torch.Tensor,
    src_v: torch.Tensor,
    dst_v: torch.Tensor,
    **more: Any,
) -> None:
    transfer_kv_per_layer_mla_pf_lf(src=src_k, dst=dst_k, **more)
    transfer_kv_per_layer_mla_pf_lf(src=src_v, dst=dst_v, **more)


def transfer_kv_all_layer_lf_pf(
    *,
    src_k_layers: torch.Tensor,
    dst_k: torch.Tensor,
    src_v_layers: torch.Tensor,
    dst_v: torch.Tensor,
    **more: Any,
) -> None:
    transfer_kv_all_layer_mla_lf_pf(src_layers=src_k_layers, dst=dst_k, **more)
    transfer_kv_all_layer_mla_lf_pf(src_layers=src_v_layers, dst=dst_v, **more)


def transfer_kv_per_layer_mla_pf_lf(
    *,
    src: torch.Tensor,
    dst: torch.Tensor,
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    layer_id: int,
    item_size: int,
    src_layout_dim: int,
) -> None:
    dst[dst_indices] = src[src_indices, layer_id]


def transfer_kv_all_layer_mla_lf_pf(
    *,
    src_layers: torch.Tensor,
    dst: torch.Tensor,
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    item_size: int,
    dst_layout_dim: int,
    num_layers: int,
) -> None:
    for layer in range(num_layers):
        rows = _rows_at(int(src_layers[layer]), int(src_indices.max()) + 1, like=dst[0, layer])
        dst[dst_indices, layer] = rows[src_indices]


def _rows_at(address: int, count: int, *, like: torch.Tensor) -> torch.Tensor:
    """The rows that lie at an address, each shaped as `like`."""
    memory = (ctypes.c_uint8 * (count * like.nbytes)).from_address(address)
    return torch.frombuffer(memory, dtype=like.dtype).reshape(count, *like.shape)
