"""Throughput of a replica and of all, with each term of its formula.

    throughput = gpus * compute / (1 + alpha_comm + beta_kv_miss)

`compute` is what one GPU would produce without communication and without stalls;
`alpha_comm` the all-reduces, `beta_kv_miss` the waits for KV that must be restored, both
as multiples of the compute time. The three times add up, so the formula is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pagoda.advise.plan.facts import Load
from pagoda.advise.plan.roofline import Deployment, decode_step, prefill
from pagoda.core.sizing import Budget, Capacity, KvDtype, KvShape, Parallel, vllm_capacity

_BATCH_STEP = 0.01
"""Precision, in requests, of a batch that keeps a time limit."""

Allocator = Callable[[KvShape, KvDtype, Parallel, Budget], Capacity]


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Measured KV misses: the share of requests that miss, and how long each holds up the engine.

    Time that other requests of the batch use is no stall: measure what the engine loses.
    """

    miss_rate: float = 0.0
    miss_s: float = 0.0

    @property
    def request_s(self) -> float:
        """Mean wait a request."""
        return self.miss_rate * self.miss_s


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """What a deployment produces; tokens are output tokens."""

    gpus: int
    batch: float
    compute_per_gpu: float
    alpha_comm: float
    beta_kv_miss: float
    decode_s: float
    prefill_s: float
    tokens_per_s: float
    requests_per_s: float


def combined(gpus: float, compute: float, alpha_comm: float, beta_kv_miss: float) -> float:
    """Return gpus * compute / (1 + alpha_comm + beta_kv_miss)."""
    return gpus * compute / (1 + alpha_comm + beta_kv_miss)


def throughput(
    deployment: Deployment, load: Load, batch: float, stalls: Stalls | None = None
) -> Throughput:
    """Return steady throughput with `batch` running requests a replica.

    A request costs its prefill and its share of each decode step; prompts of a pipeline
    overlap, so a stage is busy for 1 / pp of a prefill.
    """
    stalls = stalls or Stalls()
    pp, parallel = deployment.parallel.pp, deployment.parallel
    first = prefill(deployment, load.new_input, load.input_tokens - load.new_input)
    step = decode_step(deployment, batch, load.mean_context)
    share = load.output_tokens / batch
    compute_s = first.compute_s / pp + step.compute_s * share
    comm_s = first.comm_s / pp + step.comm_s * share
    stall_s = stalls.request_s
    replica_gpus = parallel.tp * parallel.pp
    compute = load.output_tokens / compute_s / replica_gpus
    alpha, beta = comm_s / compute_s, stall_s / compute_s
    tokens = combined(parallel.gpus, compute, alpha, beta)
    return Throughput(
        gpus=parallel.gpus,
        batch=batch,
        compute_per_gpu=compute,
        alpha_comm=alpha,
        beta_kv_miss=beta,
        decode_s=step.total_s,
        prefill_s=first.total_s,
        tokens_per_s=tokens,
        requests_per_s=tokens / load.output_tokens,
    )


@dataclass(frozen=True, kw_only=True)
class MemorySplit:
    """How one GPU's memory is divided, in bytes."""

    total: int
    usable: int
    weights: int
    reserve: int

    @property
    def kv(self) -> int:
        """Bytes left for KV; below zero where the weights do not fit."""
        return self.usable - self.weights - self.reserve


def memory_split(deployment: Deployment, utilization: float, reserve: int) -> MemorySplit:
    """Return the division of a rank's memory at a given `gpu_memory_utilization`."""
    total = deployment.gpu.memory_bytes
    return MemorySplit(
        total=total,
        usable=int(total * utilization),
        weights=round(deployment.rank_weight_bytes),
        reserve=reserve,
    )


def capacity_of(
    deployment: Deployment, kv_bytes: int, budget: Budget, allocator: Allocator = vllm_capacity
) -> Capacity:
    """Return what `kv_bytes` a rank hold under the settings of `budget`."""
    settled = replace(budget, available_bytes=kv_bytes)
    return allocator(deployment.model.kv, deployment.dtype, deployment.parallel, settled)


def capacity_at_load(deployment: Deployment, kv_bytes: int, budget: Budget, load: Load) -> Capacity:
    """Return the capacity for requests of the load's mean context instead of the longest."""
    mean = max(1, round(load.mean_context))
    return capacity_of(deployment, kv_bytes, replace(budget, max_model_len=mean))


def running_requests(at_load: Capacity, occupancy: float, limit: float) -> float:
    """Return the requests that run at once when `occupancy` of the pool is used.

    `at_load` is the capacity for the load's mean context (capacity_at_load).
    """
    return max(0.0, min(at_load.concurrency * occupancy, limit))


def batch_within(deployment: Deployment, load: Load, batch: float, limit_s: float | None) -> float:
    """Return the most requests, up to `batch`, whose step keeps a time limit a token.

    Zero where even one request alone is slower. A step's time rises with its batch: bisected.
    """

    def keeps(requests: float) -> bool:
        step = decode_step(deployment, requests, load.mean_context)
        return limit_s is None or step.total_s <= limit_s

    if batch < 1 or not keeps(1.0):
        return 0.0
    if keeps(batch):
        return batch
    low, high = 1.0, batch
    while high - low > _BATCH_STEP:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
