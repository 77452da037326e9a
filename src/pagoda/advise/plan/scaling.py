"""Throughput against GPUs, and where adding more stops paying (the knee)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from pagoda.advise.plan.facts import Load
from pagoda.advise.plan.roofline import Deployment
from pagoda.advise.plan.throughput import (
    Stalls,
    batch_within,
    capacity_at_load,
    memory_split,
    running_requests,
    throughput,
)
from pagoda.core.errors import SettingsError
from pagoda.core.sizing import Budget, Parallel

KNEE_GAIN = 1.5
"""A doubling that brings less than this is past the knee."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One size of tensor parallelism: throughput, or why it cannot run."""

    gpus: int
    tokens_per_s: float
    decode_s: float
    batch: float
    alpha_comm: float
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What stays the same along the curve; `decode_limit_s` is the time asked for a token."""

    budget: Budget
    utilization: float
    reserve: int
    occupancy: float
    max_requests: float
    stalls: Stalls = field(default_factory=Stalls)
    decode_limit_s: float | None = None
    node_gpus: int = 8


def point(deployment: Deployment, load: Load, settings: Settings) -> Point:
    """Return one replica's throughput at the scheduler's target occupancy."""
    gpus = deployment.parallel.tp * deployment.parallel.pp
    split = memory_split(deployment, settings.utilization, settings.reserve)
    try:
        deployment.check_heads()
        if split.kv <= 0:
            return _refused(gpus, f"weights need {split.weights:,} B of {split.usable:,} B a GPU")
        at_load = capacity_at_load(deployment, split.kv, settings.budget, load)
    except SettingsError as error:
        return _refused(gpus, error.message)
    batch = running_requests(at_load, settings.occupancy, settings.max_requests)
    if batch < 1:
        return _refused(gpus, f"KV memory holds {at_load.tokens:,} tokens: less than a request")
    batch = batch_within(deployment, load, batch, settings.decode_limit_s)
    if not batch:
        return _refused(gpus, "even one request alone takes longer than the time asked for a token")
    found = throughput(deployment, load, batch, settings.stalls)
    return Point(
        gpus=gpus,
        tokens_per_s=found.tokens_per_s / deployment.parallel.dp,
        decode_s=found.decode_s,
        batch=batch,
        alpha_comm=found.alpha_comm,
    )


def _refused(gpus: int, reason: str) -> Point:
    return Point(
        gpus=gpus, tokens_per_s=0.0, decode_s=0.0, batch=0.0, alpha_comm=0.0, refused=reason
    )


def curve(deployment: Deployment, load: Load, settings: Settings, most: int = 8) -> list[Point]:
    """Return the points for tensor parallelism 1, 2, 4, ... up to `most`."""
    sizes = [1 << i for i in range(most.bit_length()) if 1 << i <= most]
    return [point(deployment.with_parallel(Parallel(tp=tp)), load, settings) for tp in sizes]


def knee(points: list[Point]) -> int | None:
    """Return the GPUs after which a doubling gains less than KNEE_GAIN, or None without points."""
    running = [p for p in points if not p.refused]
    if not running:
        return None
    for before, after in itertools.pairwise(running):
        if after.tokens_per_s < before.tokens_per_s * KNEE_GAIN:
            return before.gpus
    return running[-1].gpus
