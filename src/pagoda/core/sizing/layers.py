"""What a layer keeps for a token or for a request, and how ranks share it.

kind        keeps                                  divided by tensor parallelism
attention   K and V of each KV head, each token    yes, by KV heads; replicated
                                                   when there are fewer heads than ranks
window      the same, for the last `window` tokens yes
latent      one MLA latent vector a token          no: each rank keeps all of it
state       a fixed state a request (Mamba, GDN,   yes, by heads
            linear attention)
shared      nothing: it reads another layer's KV   -
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from pagoda.core.errors import SettingsError
from pagoda.core.sizing.dtypes import KvDtype


def _refuse(message: str, *, key: str, remedy: str = "") -> SettingsError:
    return SettingsError(message, key=key, source="parallel sizes", remedy=remedy)


def heads_per_rank(kv_heads: int, tp: int) -> int:
    """Return the KV heads that each tensor-parallel rank keeps.

    As engines do it: divided when `tp` divides the heads; one replicated head a
    rank when the heads divide `tp` (the cache then stops shrinking); refused
    otherwise (vLLM and SGLang refuse it too).
    """
    if kv_heads % tp == 0:
        return kv_heads // tp
    if tp % kv_heads == 0:
        return 1
    sizes = [n for n in range(1, max(tp, kv_heads) + 1) if kv_heads % n == 0 or n % kv_heads == 0]
    raise _refuse(
        f"tensor parallelism {tp} neither divides {kv_heads} KV heads nor is a multiple of them",
        key="tp",
        remedy=f"use one of {', '.join(map(str, sizes))}: fewer ranks than heads split them, "
        "a multiple of them replicates each head",
    )


def layers_per_stage(layers: int, pp: int) -> int:
    """Return the layers of the fullest pipeline stage: the rank that runs out first."""
    return -(-layers // pp)


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Parallel sizes: `tp` ranks split a layer, `pp` stages split the layers, `dp` replicas."""

    tp: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for key in ("tp", "pp", "dp"):
            if getattr(self, key) < 1:
                raise _refuse(f"{key} must be at least 1, not {getattr(self, key)}", key=key)

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, kw_only=True)
class AttentionLayers:
    """Layers that keep each KV head's key and value for each token (MHA, GQA, MQA).

    `window`: only the last so many tokens are needed. `value_dim` differs from
    `head_dim` in a few models.
    """

    layers: int
    kv_heads: int
    head_dim: int
    value_dim: int | None = None
    window: int | None = None

    def token_bytes(self, dtype: KvDtype, tp: int) -> int:
        """Return bytes of one token in one layer on one rank."""
        value_dim = self.head_dim if self.value_dim is None else self.value_dim
        vectors = dtype.vector_bytes(self.head_dim) + dtype.vector_bytes(value_dim)
        return heads_per_rank(self.kv_heads, tp) * vectors


@dataclass(frozen=True, kw_only=True)
class LatentLayers:
    """Layers that keep one latent vector a token (MLA): kv_lora_rank + qk_rope_head_dim.

    Every tensor-parallel rank keeps the whole vector. `indexer_bytes`: what a
    sparse-attention indexer keeps beside it (DeepSeek V3.2: 128 fp8 + a float32 scale).
    """

    layers: int
    latent: int
    indexer_bytes: int = 0
    window: int | None = None

    def token_bytes(self, dtype: KvDtype, tp: int) -> int:
        """Return bytes of one token in one layer on one rank; `tp` changes nothing."""
        assert tp >= 1, "a rank is one of at least one"
        packed = dtype.latent_bytes
        return (dtype.vector_bytes(self.latent) if packed is None else packed) + self.indexer_bytes


@dataclass(frozen=True, kw_only=True)
class StateLayers:
    """Layers that keep a state of fixed size a request (Mamba, GDN, linear attention).

    A convolution window of `conv_dim` channels by `conv_kernel` - 1 tokens (plus one
    for each speculative token) in `conv_bytes` an element, and `state_elements` of
    recurrent state in `state_bytes` an element; both are split over ranks by `heads`.
    """

    layers: int
    heads: int
    state_elements: int
    state_bytes: int = 4
    conv_dim: int = 0
    conv_kernel: int = 1
    conv_bytes: int = 2

    def request_bytes(self, tp: int, speculative_tokens: int = 0) -> int:
        """Return bytes of one state in one layer on one rank."""
        if self.heads % tp:
            raise _refuse(
                f"tensor parallelism {tp} does not divide {self.heads} state heads",
                key="tp",
                remedy="use a divisor of the state heads",
            )
        rows = self.conv_kernel - 1 + speculative_tokens
        conv = self.conv_dim * rows * self.conv_bytes
        return (conv + self.state_elements * self.state_bytes) // tp


LayerGroup: TypeAlias = AttentionLayers | LatentLayers | StateLayers
TokenLayers: TypeAlias = AttentionLayers | LatentLayers


@dataclass(frozen=True, kw_only=True)
class KvShape:
    """All of a model's layers that keep something; `shared_layers` reuse another's KV."""

    groups: tuple[LayerGroup, ...]
    shared_layers: int = 0

    def __post_init__(self) -> None:
        for group in self.groups:
            for key, value in vars(group).items():
                if isinstance(value, int) and value < (0 if key in _MAY_BE_ZERO else 1):
                    raise SettingsError(
                        f"{key} must be positive, not {value}", key=key, source="model facts"
                    )

    @property
    def token_groups(self) -> tuple[TokenLayers, ...]:
        """Layer groups whose cache grows with tokens."""
        return tuple(g for g in self.groups if not isinstance(g, StateLayers))

    @property
    def state_groups(self) -> tuple[StateLayers, ...]:
        """Layer groups with a fixed state a request."""
        return tuple(g for g in self.groups if isinstance(g, StateLayers))

    def stage(self, pp: int) -> KvShape:
        """Return the fullest pipeline stage's share of the layers."""
        if pp == 1:
            return self
        if pp > sum(g.layers for g in self.groups):
            raise _refuse(f"{pp} pipeline stages are more than the model's layers", key="pp")
        staged = tuple(replace(g, layers=layers_per_stage(g.layers, pp)) for g in self.groups)
        return replace(self, groups=staged)

    def token_bytes(self, dtype: KvDtype, parallel: Parallel) -> int:
        """Return bytes of one token on one rank, every token layer counted in full."""
        groups = self.stage(parallel.pp).token_groups
        return sum(g.layers * g.token_bytes(dtype, parallel.tp) for g in groups)

    def growth_bytes(self, dtype: KvDtype, parallel: Parallel) -> int:
        """Return bytes that one more token of a long context adds on one rank (no windows)."""
        groups = [g for g in self.stage(parallel.pp).token_groups if g.window is None]
        return sum(g.layers * g.token_bytes(dtype, parallel.tp) for g in groups)

    def state_bytes(self, parallel: Parallel, speculative_tokens: int = 0) -> int:
        """Return bytes of one request's fixed states on one rank."""
        groups = self.stage(parallel.pp).state_groups
        return sum(g.layers * g.request_bytes(parallel.tp, speculative_tokens) for g in groups)

    def context_bytes(self, tokens: int, dtype: KvDtype, parallel: Parallel) -> int:
        """Return the least bytes that a context of `tokens` needs on one rank.

        A window counts its last tokens only, a state once: what a restore must move.
        """
        held = 0
        for group in self.stage(parallel.pp).token_groups:
            kept = tokens if group.window is None else min(tokens, group.window)
            held += kept * group.layers * group.token_bytes(dtype, parallel.tp)
        return held + self.state_bytes(parallel)


_MAY_BE_ZERO = frozenset({"indexer_bytes", "conv_dim", "conv_bytes"})
