"""The time of a decode step and of a prefill, from bytes, operations and links.

    decode step of a batch    max(weights read / bandwidth, matrix operations / FLOP/s)
                              + KV read / bandwidth + all-reduces
    prefill of new tokens     max(operations / FLOP/s, weights read / bandwidth)
                              + all-reduces
Weights are divided by tensor parallelism; a pipeline divides them further, but a token
passes every stage, so it shortens no step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pagoda.advise.plan.facts import GpuFacts, ModelFacts
from pagoda.advise.plan.links import Efficiency, Fabric, fabric_of
from pagoda.core.errors import SettingsError
from pagoda.core.sizing import AttentionLayers, KvDtype, Parallel, StateLayers

_ACTIVATION_BYTES = 2
_LATENT_PAIR_WIDTH = 128 + 64 + 128
"""MLA without absorption, as DeepSeek's models have it: key 128 + 64, value 128."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A model on GPUs: what the roofline needs to know of one replica."""

    model: ModelFacts
    gpu: GpuFacts
    parallel: Parallel
    dtype: KvDtype
    efficiency: Efficiency = field(default_factory=Efficiency)
    fabric: Fabric | None = None

    @property
    def link(self) -> Fabric:
        """The link between tensor-parallel ranks."""
        return self.fabric or fabric_of(self.gpu, self.efficiency)

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth a rank reaches, bytes a second."""
        return self.gpu.bandwidth * self.efficiency.memory

    @property
    def flops(self) -> float:
        """Operations a second a rank reaches."""
        return self.gpu.flops(self.model.weight_bits) * self.efficiency.compute

    @property
    def rank_weight_bytes(self) -> float:
        """Bytes of weights on one rank."""
        return self.model.bytes_of_weights() / (self.parallel.tp * self.parallel.pp)

    def with_parallel(self, parallel: Parallel) -> Deployment:
        """Return the same model on other parallel sizes."""
        return replace(self, parallel=parallel)

    def check_heads(self) -> None:
        """Raise SettingsError where tensor parallelism does not split the query heads."""
        heads, tp = self.model.q_heads, self.parallel.tp
        if heads % tp:
            sizes = [n for n in range(1, heads + 1) if heads % n == 0]
            raise SettingsError(
                f"tensor parallelism {tp} does not divide {heads} query heads",
                key="tp",
                source="parallel sizes",
                remedy=f"one of {', '.join(map(str, sizes))}; replicas (DP) or a pipeline (PP) "
                "use other numbers of GPUs",
            )


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The terms of one step, in seconds; `linear_s` is the larger of weights and matmul."""

    weights_s: float
    matmul_s: float
    attention_s: float
    comm_s: float

    @property
    def linear_s(self) -> float:
        """Time of the matrix layers: memory-bound or compute-bound, whichever is longer."""
        return max(self.weights_s, self.matmul_s)

    @property
    def compute_s(self) -> float:
        """Time without communication."""
        return self.linear_s + self.attention_s

    @property
    def total_s(self) -> float:
        """Time of the step."""
        return self.compute_s + self.comm_s


def decode_step(deployment: Deployment, batch: float, context: float) -> StepTime:
    """Return the time in which each of `batch` requests of `context` tokens gets one token.

    With a pipeline the batch is split into as many parts as stages; each part reads the
    weights of each stage.
    """
    model, tp, pp = deployment.model, deployment.parallel.tp, deployment.parallel.pp
    part = batch / pp
    read = model.bytes_of_weights() / tp * model.touched_weight_share(part)
    kv = model.kv.context_bytes(round(context), deployment.dtype, deployment.parallel)
    reduces = 2 * model.layers
    message = part * model.hidden * _ACTIVATION_BYTES
    return StepTime(
        weights_s=read / deployment.bandwidth,
        matmul_s=2 * model.token_params() * part / tp / deployment.flops,
        attention_s=batch * kv / deployment.bandwidth,
        comm_s=reduces * deployment.link.all_reduce_s(message, tp),
    )


def prefill(deployment: Deployment, new: float, cached: float = 0.0) -> StepTime:
    """Return the time to compute `new` tokens after `cached` ones, for one request alone."""
    model, tp = deployment.model, deployment.parallel.tp
    read = model.bytes_of_weights() / tp * model.touched_weight_share(max(new, 1))
    message = new * model.hidden * _ACTIVATION_BYTES
    return StepTime(
        weights_s=read / deployment.bandwidth,
        matmul_s=2 * model.token_params() * new / tp / deployment.flops,
        attention_s=attention_operations(model, new, cached) / tp / deployment.flops,
        comm_s=2 * model.layers * deployment.link.all_reduce_s(message, tp),
    )


def attention_operations(model: ModelFacts, new: float, cached: float) -> float:
    """Return the operations of attention over all query-key pairs of `new` tokens.

    Four for each pair, head and element (two products of two); a window caps the keys.
    State layers cost a fixed amount a token and are counted with the weights.
    """
    keys = cached + new / 2
    total = 0.0
    for group in model.kv.groups:
        if isinstance(group, StateLayers):
            continue
        seen = keys if group.window is None else min(keys, group.window)
        width = 2 * group.head_dim if isinstance(group, AttentionLayers) else _LATENT_PAIR_WIDTH
        total += group.layers * 2 * model.q_heads * width * new * seen
    return total
