"""A whole plan: from facts and settings to figures, choices and flags."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pagoda.advise.plan import figures as fig
from pagoda.advise.plan.choice import (
    EngineChoice,
    Topology,
    choose_engine,
    choose_topology,
)
from pagoda.advise.plan.economics import (
    TAIL_TOKENS,
    DriveNeeds,
    DriveUse,
    TierWorth,
    drive_needs,
    miss_rate_budget,
    recompute_s,
    stored_context_bytes,
    worth,
    write_bytes_a_day,
)
from pagoda.advise.plan.facts import GIB, Load
from pagoda.advise.plan.flags import Launch, commands
from pagoda.advise.plan.request import Request, tiers_below
from pagoda.advise.plan.roofline import Deployment, decode_step, prefill
from pagoda.advise.plan.scaling import Point, Settings, curve, knee
from pagoda.advise.plan.schedule import Target, targets
from pagoda.advise.plan.throughput import (
    MemorySplit,
    Throughput,
    batch_within,
    capacity_at_load,
    capacity_of,
    memory_split,
    running_requests,
    throughput,
)
from pagoda.core.errors import SettingsError
from pagoda.core.sizing import Budget, Capacity, Parallel, kv_dtype, sglang_capacity

_LOSS = 0.05


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer. `capacity` is one replica's; a replica is tp * pp GPUs.

    `fits` False leaves `speed` None: the figures then say what is missing.
    """

    request: Request
    deployment: Deployment
    topology: Topology
    memory: MemorySplit
    capacity: Capacity | None
    speed: Throughput | None
    scaling: tuple[Point, ...]
    knee_gpus: int | None
    schedule: tuple[Target, ...]
    tiers: tuple[TierWorth, ...]
    compute_ttft_s: float
    device_ttft_s: float
    drives: DriveNeeds | None
    miss_budgets: dict[str, float]
    engine: EngineChoice | None
    commands: dict[str, str]
    figures: tuple[fig.Figure, ...]
    assumptions: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether one replica holds the weights and at least one request of full length."""
        return self.capacity is not None and self.capacity.concurrency >= 1


def make_plan(request: Request) -> Plan:
    """Return the plan for a request. SettingsError for facts that are missing or contradict."""
    base = _deployment(request)
    settings = _settings(request)
    topology = _topology(base, request, settings)
    deployment = base.with_parallel(topology.parallel)
    if request.parallel is not None:
        deployment.check_heads()
    memory = memory_split(deployment, request.utilization, request.reserve_bytes)
    points = curve(base, request.load, settings, most=max(8, min(request.gpus, 16)))
    capacity = capacity_of(deployment, memory.kv, settings.budget) if memory.kv > 0 else None
    at_load = None
    if memory.kv > 0:
        at_load = capacity_at_load(deployment, memory.kv, settings.budget, request.load)
    speed = None if at_load is None else _speed(deployment, request, at_load)
    worths = _worths(deployment, request)
    drives = None if speed is None else _drives(deployment, request, speed)
    plan = Plan(
        request=request,
        deployment=deployment,
        topology=topology,
        memory=memory,
        capacity=capacity,
        speed=speed,
        scaling=tuple(points),
        knee_gpus=knee(points),
        schedule=tuple(_schedule(deployment, request, at_load)),
        tiers=tuple(worths),
        compute_ttft_s=prefill(deployment, request.load.input_tokens).total_s,
        device_ttft_s=_device_ttft(deployment, request.load),
        drives=drives,
        miss_budgets={}
        if speed is None
        else _miss_budgets(deployment, speed, request.load, worths),
        engine=_engine(deployment, request, memory, capacity),
        commands={},
        figures=(),
        assumptions=_assumptions(request, deployment, capacity),
    )
    return replace(plan, figures=tuple(_figures(plan)), commands=_commands(plan))


def _deployment(request: Request) -> Deployment:
    name = request.kv_dtype or request.model.kv_dtype
    if name is None:
        raise SettingsError(
            f"{request.model.source} does not say in which format the cache is kept",
            key="kv_dtype",
            source=request.model.source,
            remedy="name it with --kv-dtype (bf16, fp8, ...)",
        )
    return Deployment(
        model=request.model,
        gpu=request.gpu,
        parallel=request.parallel or Parallel(),
        dtype=kv_dtype(name),
        efficiency=request.efficiency,
    )


def _settings(request: Request) -> Settings:
    longest = request.max_model_len or request.model.max_context
    return Settings(
        budget=Budget(
            available_bytes=0,
            block_tokens=request.block_tokens,
            max_model_len=longest,
            max_batched_tokens=request.max_batched_tokens,
            speculative_tokens=request.speculative_tokens,
        ),
        utilization=request.utilization,
        reserve=request.reserve_bytes,
        occupancy=request.occupancy,
        max_requests=request.max_requests,
        stalls=request.stalls,
        decode_limit_s=request.decode_limit_s,
    )


def _topology(base: Deployment, request: Request, settings: Settings) -> Topology:
    if request.parallel is not None:
        return Topology(parallel=request.parallel, point=None, reasons=("as asked",))
    return choose_topology(base, request.load, settings, request.gpus)


def _speed(deployment: Deployment, request: Request, at_load: Capacity) -> Throughput | None:
    batch = running_requests(at_load, request.occupancy, request.max_requests)
    batch = batch_within(deployment, request.load, batch, request.decode_limit_s)
    if batch < 1:
        return None
    return throughput(deployment, request.load, batch, request.stalls)


def _schedule(deployment: Deployment, request: Request, at_load: Capacity | None) -> list[Target]:
    if at_load is None:
        return []
    return targets(deployment, request.load, at_load, request.max_requests, request.stalls)


def _device_ttft(deployment: Deployment, load: Load) -> float:
    prefix = load.input_tokens * load.shared_prefix or load.input_tokens
    return prefill(deployment, max(load.input_tokens - prefix, 1), prefix).total_s


def _worths(deployment: Deployment, request: Request) -> list[TierWorth]:
    longest = request.max_model_len or request.model.max_context
    found = tiers_below(request.gpu, request.tiers, request.efficiency.link)
    return [worth(deployment, tier, request.load, longest) for tier in found]


def _drives(deployment: Deployment, request: Request, speed: Throughput) -> DriveNeeds | None:
    tiers, load = request.tiers, request.load
    if not tiers.drives:
        return None
    rate = min(load.requests_per_s or speed.requests_per_s, speed.requests_per_s)
    restored = stored_context_bytes(deployment, load.input_tokens * load.shared_prefix)
    written = write_bytes_a_day(deployment, load, rate) * tiers.write_share
    use = DriveUse(
        held_bytes=written * tiers.retain_hours / 24,
        read_bytes_per_s=rate * restored,
        write_bytes_a_day=written,
    )
    return drive_needs(tiers.drive, use, tiers.drives)


def _miss_budgets(
    deployment: Deployment, speed: Throughput, load: Load, worths: list[TierWorth]
) -> dict[str, float]:
    """Return the share of requests that may miss at a loss of 5 % of throughput.

    By tier, for restores that hold up the engine; "recompute" for prefixes computed again.
    """
    parallel = deployment.parallel
    compute_s = load.output_tokens / (speed.compute_per_gpu * parallel.tp * parallel.pp)
    prefix = load.input_tokens * load.shared_prefix or load.input_tokens
    again = recompute_s(deployment, prefix, max(load.new_input, TAIL_TOKENS)) / parallel.pp
    costs = {found.tier.name: found.restore_s for found in worths} | {"recompute": again}
    return {name: miss_rate_budget(_LOSS, compute_s, cost) for name, cost in costs.items()}


def _engine(
    deployment: Deployment, request: Request, memory: MemorySplit, capacity: Capacity | None
) -> EngineChoice | None:
    if capacity is None:
        return None
    budget = _settings(request).budget
    other = capacity_of(deployment, memory.kv, budget, sglang_capacity)
    return choose_engine(deployment, request.load, capacity, other)


def _figures(plan: Plan) -> list[fig.Figure]:
    request, deployment = plan.request, plan.deployment
    found = fig.memory_figures(plan.memory, deployment, request.utilization)
    if plan.capacity is not None:
        found += fig.kv_figures(deployment, plan.capacity)
    if plan.speed is not None:
        step = decode_step(deployment, plan.speed.batch, request.load.mean_context)
        found += fig.step_figures("decode", step)
        first = prefill(
            deployment,
            request.load.new_input,
            request.load.input_tokens - request.load.new_input,
        )
        found += fig.step_figures("prefill", first)
        found += fig.throughput_figures(plan.speed, request.load)
    found += fig.tier_figures(list(plan.tiers))
    if request.tiers.host_bytes:
        found.append(fig.pinned_figure(request.tiers.host_bytes, deployment.parallel.gpus))
    if plan.drives is not None:
        found += fig.drive_figures(plan.drives)
    return found


def _commands(plan: Plan) -> dict[str, str]:
    if plan.capacity is None or plan.speed is None:
        return {}
    request, tiers = plan.request, plan.request.tiers
    replicas = plan.deployment.parallel.dp
    return commands(
        Launch(
            model=request.model.name if "catalogue" not in request.model.source else _repo(request),
            parallel=plan.deployment.parallel,
            kv_dtype=plan.deployment.dtype.name,
            block_tokens=request.block_tokens,
            max_model_len=plan.capacity.max_model_len,
            utilization=request.utilization,
            max_requests=max(1, math.floor(plan.speed.batch)),
            host_bytes=int(tiers.host_bytes / replicas),
            drives=tiers.drives,
            drive_bytes=int(tiers.drive.capacity_bytes * 0.9 / replicas),
        )
    )


def _repo(request: Request) -> str:
    return request.model.source.rsplit(" ", 1)[-1]


def _assumptions(
    request: Request, deployment: Deployment, capacity: Capacity | None
) -> tuple[str, ...]:
    efficiency = request.efficiency
    notes = [
        *request.model.notes,
        *(() if capacity is None else capacity.assumptions),
        f"model facts: {request.model.source}",
        f"GPU facts: {request.gpu.source}",
        f"kernels reach {efficiency.compute:.0%} of dense FLOP/s, {efficiency.memory:.0%} of "
        f"memory bandwidth, {efficiency.link:.0%} of link rates (assumed, not measured here)",
        f"{request.reserve_bytes / GIB:g} GiB a GPU are reserved for activations and graphs",
        f"{request.occupancy:.0%} of the KV pool is used; running contexts hold "
        f"{request.load.mean_context:,.0f} tokens on average",
    ]
    if request.model.experts:
        notes.append("experts are split by tensor parallelism: no expert-parallel exchange")
    if request.kv_dtype is None:
        notes.append(f"KV is kept as {deployment.dtype.name}, the checkpoint's own format")
    if not request.stalls.miss_rate:
        notes.append("no measured KV misses were given: beta_kv_miss is 0")
    if request.load.requests_per_s is None:
        notes.append("no request rate was given: the GPUs are assumed to be kept busy")
    return tuple(notes)
