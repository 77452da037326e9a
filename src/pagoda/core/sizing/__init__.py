"""KV arithmetic: bytes a token, bytes a request, and what a pool of memory holds.

The one place in Pagoda where the size of a KV cache is computed. Pure: numbers
in, numbers out. Three parts:

    dtypes    how many bytes an element, and its scales, take in the cache
    layers    what one layer keeps for a token or a request, and how ranks share it
    capacity  how vLLM's pool divides memory into blocks, tokens and requests
    pools     the same question for SGLang's separate pools
"""

from __future__ import annotations

from pagoda.core.sizing.capacity import Budget, Capacity, uniform_capacity, vllm_capacity
from pagoda.core.sizing.dtypes import KV_DTYPES, KvDtype, kv_dtype
from pagoda.core.sizing.layers import (
    AttentionLayers,
    KvShape,
    LatentLayers,
    LayerGroup,
    Parallel,
    StateLayers,
    heads_per_rank,
    layers_per_stage,
)
from pagoda.core.sizing.pools import sglang_capacity

__all__ = [
    "KV_DTYPES",
    "AttentionLayers",
    "Budget",
    "Capacity",
    "KvDtype",
    "KvShape",
    "LatentLayers",
    "LayerGroup",
    "Parallel",
    "StateLayers",
    "heads_per_rank",
    "kv_dtype",
    "layers_per_stage",
    "sglang_capacity",
    "uniform_capacity",
    "vllm_capacity",
]
