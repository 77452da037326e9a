"""What the flags of `pagoda plan` describe: layers, ranks, a model, a GPU, a load."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from pagoda.advise.plan.catalogue import find_gpu, find_model
from pagoda.advise.plan.facts import GIB, GpuFacts, Load, ModelFacts
from pagoda.advise.plan.hfconfig import read_model
from pagoda.advise.plan.hostgpus import QUERY, parse_gpus
from pagoda.advise.plan.links import pcie_bytes_per_s
from pagoda.advise.plan.load import load_trace
from pagoda.core.errors import SettingsError
from pagoda.core.sizing import (
    AttentionLayers,
    Capacity,
    KvShape,
    LatentLayers,
    LayerGroup,
    Parallel,
)

_QUERY_TIMEOUT_S = 20.0


def geometry_of(
    *,
    layers: int,
    heads: tuple[int | None, int | None],
    latent: int | None,
    window: tuple[int | None, int | None],
) -> KvShape:
    """Return the layers that the flags describe; SettingsError where a fact is missing."""
    size, sliding = window
    if sliding is not None and size is None:
        raise _missing("--sliding-layers needs --sliding-window", "sliding_window")
    sliding = (layers if sliding is None else sliding) if size is not None else 0
    if sliding > layers:
        raise _missing(f"{sliding} sliding layers of only {layers}", "sliding_layers")
    groups = [
        _layers(count, heads, latent, kept)
        for count, kept in ((layers - sliding, None), (sliding, size))
        if count
    ]
    return KvShape(groups=tuple(groups))


def _layers(
    count: int, heads: tuple[int | None, int | None], latent: int | None, window: int | None
) -> LayerGroup:
    if latent is not None:
        return LatentLayers(layers=count, latent=latent, window=window)
    kv_heads, head_dim = heads
    if kv_heads is None or head_dim is None:
        raise _missing("--kv-heads and --head-dim (or --mla-latent) are needed", "kv_heads")
    return AttentionLayers(layers=count, kv_heads=kv_heads, head_dim=head_dim, window=window)


def _missing(message: str, key: str) -> SettingsError:
    remedy = "the model's config.json says it; the planner does not guess"
    return SettingsError(message, key=key, source="flags", remedy=remedy)


def rank_notes(shape: KvShape, parallel: Parallel) -> list[str]:
    """Return what parallel sizes do to this geometry, where it is not a plain division."""
    notes = []
    for group in shape.groups:
        if isinstance(group, LatentLayers) and parallel.tp > 1:
            notes.append(f"every one of {parallel.tp} ranks keeps the whole latent")
        if isinstance(group, AttentionLayers) and parallel.tp > group.kv_heads:
            copies = parallel.tp // group.kv_heads
            notes.append(f"{group.kv_heads} KV heads are replicated {copies} times over the ranks")
        if group.layers % parallel.pp:
            notes.append(
                f"{group.layers} layers over {parallel.pp} stages: the fullest, with "
                f"{-(-group.layers // parallel.pp)}, decides"
            )
    return list(dict.fromkeys(notes))


def too_small(found: Capacity, available_gib: float) -> str:
    """Return what to say of a pool that does not hold one request of the greatest length."""
    return (
        f"not one request of {found.max_model_len:,} tokens fits: it takes "
        f"{found.request_bytes / GIB:,.2f} GiB of one rank, {available_gib:,.2f} GiB are there; "
        "engines refuse to start so: a lower --max-model-len, more memory or more ranks"
    )


def parallel_of(sizes: tuple[int, int], dp: int | None, gpus: int | None) -> Parallel:
    """Return the sizes asked for; replicas fill the GPUs where only these are named."""
    tp, pp = sizes
    if dp is None:
        dp = 1 if gpus is None else max(1, gpus // (tp * pp))
    asked = Parallel(tp=tp, pp=pp, dp=dp)
    if gpus is not None and asked.gpus > gpus:
        raise SettingsError(
            f"TP {tp} x PP {pp} x DP {dp} are {asked.gpus} GPUs, not {gpus}",
            key="gpus",
            source="--gpus",
            remedy="fewer ranks, stages or replicas, or more --gpus",
        )
    return asked


def pcie_link(text: str, flag: str) -> tuple[int, int]:
    generation, _, lanes = text.partition("x")
    if not (generation.isdigit() and lanes.isdigit()):
        raise SettingsError(
            f"{text!r} is no PCIe link", key="pcie", source=flag, remedy="write 4x16"
        )
    pcie_bytes_per_s(int(generation), int(lanes))  # refuses links that do not exist
    return int(generation), int(lanes)


def share(value: float, flag: str) -> float:
    if not 0 < value <= 1:
        raise SettingsError(f"{flag} must lie in (0, 1]", key="efficiency", source=flag)
    return value


def model_facts(
    name: str, bits: float | None, params_b: float | None, active_b: float | None
) -> ModelFacts:
    path = Path(name)
    facts = read_model(path) if path.exists() else find_model(name)
    if params_b is not None:
        total = params_b * 1e9
        facts = replace(facts, params=total, active_params=total)
    if active_b is not None:
        facts = replace(facts, active_params=active_b * 1e9)
    if bits is not None:
        facts = replace(facts, weight_bits=bits, weight_bytes=None)
    return facts


def gpu_facts(
    name: str | None, count: int | None, own: tuple[float | None, float | None, float | None]
) -> tuple[GpuFacts, int]:
    """Return the GPU and how many: by name, by its own facts, or this host's."""
    memory, bandwidth, tflops = own
    if memory is not None and bandwidth is not None and tflops is not None:
        return _own_gpu(name or "own", memory, bandwidth, tflops), count or 1
    if name is not None:
        facts = find_gpu(name)
        if memory is not None:
            facts = replace(facts, memory_bytes=round(memory * GIB))
        return facts, count or 1
    facts, found = parse_gpus(_query())
    return facts, count or found


def _own_gpu(name: str, memory: float, bandwidth: float, tflops: float) -> GpuFacts:
    return GpuFacts(
        name=name,
        source="flags (PCIe 4.0 x16 and no NVLink assumed)",
        memory_bytes=round(memory * GIB),
        bandwidth=bandwidth * 1e9,
        bf16_flops=tflops * 1e12,
        fp8_flops=None,
        nvlink=0.0,
        pcie_generation=4,
        pcie_lanes=16,
    )


def _query() -> str:
    remedy = "name the GPU: --gpu h100 --gpus 8 (`pagoda plan catalogue` lists them)"
    try:
        done = subprocess.run(
            QUERY, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SettingsError(
            f"no GPU was named and nvidia-smi does not answer here ({type(error).__name__})",
            key="gpu",
            source="nvidia-smi",
            remedy=remedy,
        ) from error
    return done.stdout


def load_of(
    trace: Path | None,
    lengths: tuple[float | None, float | None],
    arrivals: tuple[float | None, float],
    longest: int,
) -> Load:
    """Return the load of the flags or of a trace; short contexts get a shorter default."""
    rate, shared = arrivals
    if trace is not None:
        found = load_trace(trace)
        return found if rate is None else replace(found, requests_per_s=rate)
    given, produced = lengths
    return Load(
        input_tokens=min(2000.0, longest * 0.75) if given is None else given,
        output_tokens=min(300.0, longest * 0.125) if produced is None else produced,
        requests_per_s=rate,
        shared_prefix=shared,
    )
