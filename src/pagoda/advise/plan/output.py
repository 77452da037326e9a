"""A plan as plain data: the shape that `pagoda plan --json` prints."""

from __future__ import annotations

import math
from typing import Any

from pagoda.advise.plan.economics import TierWorth
from pagoda.advise.plan.planner import Plan
from pagoda.advise.plan.svg import Plot
from pagoda.core.sizing import Capacity


def capacity_json(capacity: Capacity) -> dict[str, Any]:
    """Return the shape of `pagoda plan kv --json`."""
    return {
        "bytes_per_token_per_rank": capacity.bytes_per_token,
        "tokens": capacity.tokens,
        "blocks": capacity.blocks,
        "concurrency": round(capacity.concurrency, 4),
        "assumptions": list(capacity.assumptions),
        "block_tokens": capacity.block_tokens,
        "tokens_by_concurrency": capacity.tokens_by_concurrency,
        "request_bytes_per_rank": capacity.request_bytes,
    }


_NOTHING: dict[str, Any] = {
    "bytes_per_token_per_rank": 0,
    "tokens": 0,
    "blocks": 0,
    "concurrency": 0.0,
    "assumptions": [],
}


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return everything a plan says; every number is finite or null."""
    parallel = plan.deployment.parallel
    sizes = _NOTHING if plan.capacity is None else capacity_json(plan.capacity)
    return sizes | {
        "model": plan.request.model.name,
        "gpu": plan.request.gpu.name,
        "fits": plan.fits,
        "parallel": {"tp": parallel.tp, "pp": parallel.pp, "dp": parallel.dp},
        "tokens_all_replicas": sizes["tokens"] * parallel.dp,
        "throughput": _throughput(plan),
        "scaling": {
            "knee_gpus": plan.knee_gpus,
            "points": [vars(point) for point in plan.scaling],
        },
        "ttft_ms": ttft_by_source(plan),
        "tiers": [_tier(found) for found in plan.tiers],
        "miss_rate_budget": plan.miss_budgets,
        "drives": None if plan.drives is None else _drives(plan),
        "scheduler": {
            "target_occupancy": plan.request.occupancy,
            "targets": [vars(target) for target in plan.schedule],
        },
        "engine": _engine(plan),
        "topology": list(plan.topology.reasons),
        "flags": plan.commands,
        "figures": [vars(figure) | {"value": _finite(figure.value)} for figure in plan.figures],
        "assumptions": list(plan.assumptions),
    }


def ttft_by_source(plan: Plan) -> dict[str, float]:
    """Return milliseconds to the first token by where the prefix lies."""
    found = {"device": plan.device_ttft_s}
    found |= {worth.tier.name: worth.ttft_s for worth in plan.tiers}
    found["nowhere"] = plan.compute_ttft_s
    return {name: round(seconds * 1e3, 3) for name, seconds in found.items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _throughput(plan: Plan) -> dict[str, Any] | None:
    if plan.speed is None:
        return None
    asked = plan.request.load.requests_per_s
    return vars(plan.speed) | {
        "requests_per_s_asked": asked,
        "enough": None if asked is None else plan.speed.requests_per_s >= asked,
    }


def _tier(found: TierWorth) -> dict[str, Any]:
    return {
        "name": found.tier.name,
        "link": found.tier.link,
        "tokens": found.tokens,
        "restore_ms": round(found.restore_s * 1e3, 3),
        "recompute_ms": round(found.recompute_s * 1e3, 3),
        "break_even_tokens": found.break_even_tokens,
        "overlap_needed": round(found.overlap_needed, 4),
    }


def _drives(plan: Plan) -> dict[str, Any]:
    assert plan.drives is not None, "asked only with drives"
    return vars(plan.drives) | {
        "life_years": _finite(plan.drives.life_years),
        "needed": plan.drives.drives,
    }


def _engine(plan: Plan) -> dict[str, Any] | None:
    if plan.engine is None:
        return None
    reasons = [vars(reason) for reason in plan.engine.reasons]
    return {"choice": plan.engine.engine, "reasons": reasons}


def scaling_plot(plan: Plan) -> str | None:
    """Return the scaling curve as SVG, the knee marked; None where no size runs."""
    running = [p for p in plan.scaling if not p.refused]
    if not running:
        return None
    first = running[0]
    return Plot(
        title=f"{plan.request.model.name} on {plan.request.gpu.name}: tensor parallelism",
        x_label="GPUs in one replica (dashed: in proportion to the first)",
        y_label="output tokens/s",
        points=tuple((p.gpus, p.tokens_per_s) for p in running),
        ideal=tuple((p.gpus, first.tokens_per_s * p.gpus / first.gpus) for p in running),
        marked=plan.knee_gpus,
        mark_label=f"knee: {plan.knee_gpus}",
    ).draw()
