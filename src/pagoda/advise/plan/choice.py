"""Which engine, and which parallel sizes: chosen by stated rules over computed figures."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.advise.plan.facts import Load
from pagoda.advise.plan.roofline import Deployment
from pagoda.advise.plan.scaling import Point, Settings, point
from pagoda.core.sizing import Capacity, LatentLayers, Parallel

_MARGIN = 1.1
"""A capacity this much larger counts as a reason."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One argument: the engine it speaks for, and the sentence."""

    engine: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The engine with more reasons; vLLM where they are equal."""

    engine: str
    reasons: tuple[Reason, ...]


def choose_engine(
    deployment: Deployment, load: Load, vllm: Capacity, sglang: Capacity
) -> EngineChoice:
    """Return the engine for a load's shape, each reason with its figure."""
    reasons = [
        *_capacity_reason(vllm, sglang),
        *_prefix_reasons(load),
        *_model_reasons(deployment),
    ]
    votes = {name: sum(r.engine == name for r in reasons) for name in ("vllm", "sglang")}
    engine = "sglang" if votes["sglang"] > votes["vllm"] else "vllm"
    if not reasons:
        reasons.append(
            Reason(
                engine="vllm",
                sentence="nothing in this load tells them apart; vLLM runs on more hardware",
            )
        )
    return EngineChoice(engine=engine, reasons=tuple(reasons))


def _capacity_reason(vllm: Capacity, sglang: Capacity) -> list[Reason]:
    sizes = {"vllm": vllm.concurrency, "sglang": sglang.concurrency}
    more = max(sizes, key=lambda name: sizes[name])
    less = min(sizes, key=lambda name: sizes[name])
    if sizes[more] < sizes[less] * _MARGIN:
        return []
    return [
        Reason(
            engine=more,
            sentence=f"its allocator holds {sizes[more]:.1f} requests of full length, "
            f"{less}'s {sizes[less]:.1f}",
        )
    ]


def _prefix_reasons(load: Load) -> list[Reason]:
    if load.shared_prefix >= 0.5:
        return [
            Reason(
                engine="sglang",
                sentence=f"{load.shared_prefix:.0%} of the input is shared: its radix tree matches "
                "branching prefixes by token and schedules by longest match",
            )
        ]
    return []


def _model_reasons(deployment: Deployment) -> list[Reason]:
    shape, parallel = deployment.model.kv, deployment.parallel
    reasons = []
    if shape.state_groups:
        reasons.append(
            Reason(
                engine="vllm",
                sentence="the model keeps recurrent states: one pool for blocks and states "
                "needs no ratio set in advance",
            )
        )
    if parallel.pp > 1:
        reasons.append(
            Reason(engine="vllm", sentence="a pipeline over hosts is its usual way to span them")
        )
    if parallel.tp > 1 and any(isinstance(g, LatentLayers) for g in shape.groups):
        reasons.append(
            Reason(
                engine="sglang",
                sentence=f"{parallel.tp} ranks would each keep the same latent: its data-parallel "
                "attention keeps one pool a rank instead (add them up)",
            )
        )
    return reasons


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Parallel sizes, the figure they were chosen by, and what was left aside."""

    parallel: Parallel
    point: Point | None
    reasons: tuple[str, ...]


def choose_topology(
    deployment: Deployment,
    load: Load,
    settings: Settings,
    gpus: int,
) -> Topology:
    """Return the parallel sizes with the most throughput on `gpus` that keep the time limit.

    Tensor parallelism stays inside a host; replicas fill the rest. A pipeline over hosts is
    tried last and wins only where a host's GPUs alone hold too little.
    """
    tried, best = [], None
    for parallel in _candidates(gpus, settings.node_gpus):
        found = point(deployment.with_parallel(parallel), load, settings)
        if found.refused:
            tried.append(f"{_label(parallel)}: {found.refused}")
            continue
        total = found.tokens_per_s * parallel.dp
        tried.append(
            f"{_label(parallel)}: {total:,.0f} tokens/s, {found.decode_s * 1e3:.1f} ms a token"
        )
        if best is None or total > best[0]:
            best = (total, parallel, found)
        if parallel.pp > 1:
            break
    if best is None:
        largest = _candidates(gpus, settings.node_gpus)[-1]
        return Topology(parallel=largest, point=None, reasons=tuple(tried))
    return Topology(parallel=best[1], point=best[2], reasons=tuple(tried))


def _candidates(gpus: int, node_gpus: int) -> list[Parallel]:
    inside = [1 << i for i in range(8) if 1 << i <= min(gpus, node_gpus)]
    sizes = [Parallel(tp=tp, dp=gpus // tp) for tp in inside]
    hosts = [pp for pp in (2, 4, 8) if pp * inside[-1] <= gpus]
    return sizes + [Parallel(tp=inside[-1], pp=pp, dp=gpus // (inside[-1] * pp)) for pp in hosts]


def _label(parallel: Parallel) -> str:
    return f"TP {parallel.tp} x PP {parallel.pp} x DP {parallel.dp}"
