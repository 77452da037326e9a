"""Figures with their formulas: every number of a plan says how it came about."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.advise.plan.economics import DriveNeeds, TierWorth
from pagoda.advise.plan.facts import GIB, Load
from pagoda.advise.plan.roofline import Deployment, StepTime
from pagoda.advise.plan.throughput import MemorySplit, Throughput
from pagoda.core.sizing import AttentionLayers, Capacity, LatentLayers, Parallel, StateLayers


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A named number with its unit and the formula that gave it, values filled in."""

    name: str
    value: float
    unit: str
    formula: str


def _figure(name: str, value: float, unit: str, formula: str) -> Figure:
    return Figure(name=name, value=value, unit=unit, formula=formula)


def kv_figures(deployment: Deployment, capacity: Capacity) -> list[Figure]:
    """Return the KV sizes and what the pool holds."""
    shape, dtype, parallel = deployment.model.kv, deployment.dtype, deployment.parallel
    return [
        _figure(
            "kv_bytes_per_token",
            shape.token_bytes(dtype, Parallel()),
            "B",
            " + ".join(_layer_terms(deployment, Parallel())) + "  (all ranks, each head once)",
        ),
        _figure(
            "kv_bytes_per_token_per_rank",
            capacity.bytes_per_token,
            "B",
            " + ".join(_layer_terms(deployment, parallel)) + "  (pool padding included)",
        ),
        _figure(
            "kv_blocks",
            capacity.blocks,
            "blocks",
            "available bytes // bytes of a block, on the fullest rank",
        ),
        _figure(
            "kv_tokens",
            capacity.tokens,
            "tokens",
            f"blocks a group * {capacity.block_tokens} tokens",
        ),
        _figure(
            "concurrency",
            capacity.concurrency,
            "requests",
            f"pool / {capacity.request_bytes:,} B, a request of {capacity.max_model_len:,} tokens",
        ),
    ]


def _layer_terms(deployment: Deployment, parallel: Parallel) -> list[str]:
    terms = []
    for group in deployment.model.kv.stage(parallel.pp).groups:
        if isinstance(group, AttentionLayers):
            heads = f"{group.kv_heads} heads" + (f" / TP {parallel.tp}" if parallel.tp > 1 else "")
            window = f" (last {group.window} tokens)" if group.window else ""
            terms.append(f"{group.layers} layers{window} * {heads} * {group.head_dim} * 2 (K, V)")
        elif isinstance(group, LatentLayers):
            terms.append(f"{group.layers} layers * {group.latent} (not divided by TP)")
        elif isinstance(group, StateLayers):
            size = group.request_bytes(parallel.tp)
            terms.append(f"{group.layers} layers * a state of {size:,} B a request")
    terms[-1] += f", {deployment.dtype.bits} bits an element ({deployment.dtype.name})"
    return terms


def memory_figures(split: MemorySplit, deployment: Deployment, utilization: float) -> list[Figure]:
    """Return how one GPU's memory is divided."""
    parallel = deployment.parallel
    return [
        _figure("gpu_memory", split.total / GIB, "GiB", deployment.gpu.source),
        _figure(
            "weights_per_rank",
            split.weights / GIB,
            "GiB",
            f"{deployment.model.bytes_of_weights() / GIB:.2f} GiB / (TP {parallel.tp} * "
            f"PP {parallel.pp})",
        ),
        _figure(
            "kv_memory_per_rank",
            split.kv / GIB,
            "GiB",
            f"{split.total / GIB:.2f} * {utilization:g} - weights - reserve "
            f"{split.reserve / GIB:.2f}",
        ),
    ]


def step_figures(name: str, step: StepTime) -> list[Figure]:
    """Return the terms of a decode step or prefill, in milliseconds."""
    return [
        _figure(f"{name}_weights", step.weights_s * 1e3, "ms", "weight bytes read / bandwidth"),
        _figure(f"{name}_matmul", step.matmul_s * 1e3, "ms", "2 * parameters * tokens / FLOP/s"),
        _figure(
            f"{name}_attention",
            step.attention_s * 1e3,
            "ms",
            "KV bytes read / bandwidth"
            if name == "decode"
            else "4 * heads * head size * query-key pairs / FLOP/s",
        ),
        _figure(
            f"{name}_comm",
            step.comm_s * 1e3,
            "ms",
            "2 all-reduces a layer: latency + 2 (n - 1) / n * bytes / link",
        ),
        _figure(
            f"{name}_total", step.total_s * 1e3, "ms", "max(weights, matmul) + attention + comm"
        ),
    ]


def throughput_figures(found: Throughput, load: Load) -> list[Figure]:
    """Return the terms of throughput = gpus * compute / (1 + alpha + beta)."""
    return [
        _figure(
            "compute_per_gpu",
            found.compute_per_gpu,
            "tokens/s",
            f"{load.output_tokens:g} output tokens / (prefill + decode without comm) / GPUs",
        ),
        _figure("alpha_comm", found.alpha_comm, "", "all-reduce time / compute time"),
        _figure(
            "beta_kv_miss", found.beta_kv_miss, "", "measured misses: rate * wait / compute time"
        ),
        _figure(
            "throughput",
            found.tokens_per_s,
            "tokens/s",
            f"{found.gpus} * {found.compute_per_gpu:.1f} / (1 + {found.alpha_comm:.4f} + "
            f"{found.beta_kv_miss:.4f})",
        ),
    ]


def tier_figures(worths: list[TierWorth]) -> list[Figure]:
    """Return each tier's tokens, break-even length and time to first token."""
    figures = []
    for found in worths:
        name = found.tier.name
        figures += [
            _figure(f"{name}_tokens", found.tokens, "tokens", "capacity / stored bytes a token"),
            _figure(
                f"{name}_restore",
                found.restore_s * 1e3,
                "ms",
                f"{found.tier.latency_s * 1e3:g} ms + prefix bytes / {found.tier.link}",
            ),
            _figure(
                f"{name}_recompute",
                found.recompute_s * 1e3,
                "ms",
                "prefill(prefix + tail) - prefill(tail after the prefix)",
            ),
        ]
        if found.break_even_tokens is not None:
            formula = "shortest prefix from which on restore < recompute"
            figures.append(
                _figure(f"{name}_break_even", found.break_even_tokens, "tokens", formula)
            )
    return figures


def pinned_figure(host_bytes: float, ranks: int) -> Figure:
    """Return the pinned host memory a rank: the memory-lock limit must allow it."""
    return _figure(
        "host_pinned_per_rank",
        host_bytes / ranks / GIB,
        "GiB",
        f"{host_bytes / GIB:.1f} GiB / {ranks} ranks",
    )


def drive_figures(needs: DriveNeeds) -> list[Figure]:
    """Return writes a day, drives and their life."""
    return [
        _figure(
            "write_volume",
            needs.write_bytes_a_day / 1e12,
            "TB/day",
            "requests/s * (new input + output) * stored bytes a token * share * 86,400",
        ),
        _figure(
            "drives_needed",
            needs.drives,
            "drives",
            f"largest of space {needs.by_capacity}, reads {needs.by_read}, "
            f"writes {needs.by_write}, endurance {needs.by_endurance}",
        ),
        _figure(
            "drive_life",
            needs.life_years,
            "years",
            f"{needs.owned} drives * rated bytes / (writes a day * amplification * 365.25)",
        ),
    ]
