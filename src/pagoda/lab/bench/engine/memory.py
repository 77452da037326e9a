"""Resident memory of a serving engine, and its growth over thousands of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pagoda.core.errors import EngineClosed
from pagoda.lab.bench.child import run_child
from pagoda.lab.bench.engine.asking import ask_all
from pagoda.lab.bench.engine.setup import MIB, Say, Setup, prompts
from pagoda.lab.bench.figures import Figure, Part
from pagoda.serve.compose import open_engine

REQUESTS = 2000
QUICK_REQUESTS = 128
TOGETHER = 32
GOAL_OVERHEAD_BYTES = 500 * 10**6
GROWTH_BYTES = 8 * MIB  # allocators breathe by this much
KV_BYTES, HOST_BYTES, DRIVE_BYTES = 256 * MIB, 128 * MIB, 512 * MIB


def measure(setup: Setup, say: Say) -> Part:
    """Both memory figures, from one process that serves nothing else."""
    requests = QUICK_REQUESTS if setup.quick else REQUESTS
    say(f"memory over {requests} requests")
    row = run_child("memory", setup.to_json() | {"requests": requests})
    weights = sum(path.stat().st_size for path in setup.model.glob("*.safetensors"))
    pools = KV_BYTES + HOST_BYTES
    over = row["peak_bytes"] - weights - pools
    since, growth = grown(row["after_requests"], row["rss_bytes"])
    row |= {"weights_bytes": weights, "pools_bytes": pools}
    figures = [
        Figure(
            name="peak memory beyond weights, KV pool and host tier",
            value=over / 1e6,
            unit="MB",
            goal="<= 500",
            met=setup.judged(over <= GOAL_OVERHEAD_BYTES),
            detail=row,
        ),
        Figure(
            name=f"growth of memory from request {since} to {row['after_requests'][-1]}",
            value=growth / 1e6,
            unit="MB",
            goal=f"none (<= {GROWTH_BYTES / 1e6:.0f})",
            met=setup.judged(growth <= GROWTH_BYTES),
            detail={"rss_bytes": row["rss_bytes"], "after_requests": row["after_requests"]},
        ),
    ]
    return Part(figures=figures, rows=[row])


def grown(after_requests: list[int], rss_bytes: list[int]) -> tuple[int, int]:
    """The first mark after a quarter of the requests, and how many bytes were added since. By
    then every slot of every tier has been used, so that what is added is not their filling."""
    start = next(i for i, count in enumerate(after_requests) if count >= after_requests[-1] / 4)
    return after_requests[start], rss_bytes[-1] - rss_bytes[start]


def serve_many(order: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: serve different short prompts, reading the resident size. Pool,
    host tier and drive are written over and over, so none of them stays untouched."""
    setup = Setup.from_json(order)
    engine = open_engine(
        setup.settings(kv_bytes=KV_BYTES, host_bytes=HOST_BYTES, drive_bytes=DRIVE_BYTES)
    )
    texts = prompts(engine.codec, count=TOGETHER, shortest=40, longest=90)
    steps = max(1, order["requests"] // TOGETHER)
    marks = {round(steps * share / 8) for share in range(1, 9)}
    rss, after = [], []
    for step in range(1, steps + 1):
        ask_all(engine, texts, new_tokens=4, salt=f"round {step}")
        if step in marks:
            rss.append(_status_bytes("VmRSS"))
            after.append(step * TOGETHER)
    peak = _status_bytes("VmHWM")
    engine.close()
    return {"rss_bytes": rss, "after_requests": after, "peak_bytes": peak}


def _status_bytes(field: str) -> int:
    """A size of this process from /proc, in bytes."""
    status = Path("/proc/self/status")
    if not status.exists():
        raise EngineClosed("this system has no /proc to read a process's memory from")
    lines = status.read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
