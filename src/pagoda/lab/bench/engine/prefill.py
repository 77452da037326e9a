"""Prefill: a prompt's forward pass, against transformers' with SDPA and with eager attention."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pagoda.engine.codec import load_codec
from pagoda.engine.runner import Runner
from pagoda.engine.weights import load_model
from pagoda.lab.bench.engine import chunks
from pagoda.lab.bench.engine.setup import Say, Setup, prompt
from pagoda.lab.bench.figures import Figure, Part
from pagoda.lab.bench.stats import Spread, paired_ratio

PEER = "pagoda.lab.bench.transformers_peer"
LENGTHS = (512, 2048, 4096)
JUDGED_TOKENS = 2048
GOAL_RATIO = 1.3

Side = Callable[[list[int]], int]


def measure(setup: Setup, say: Say) -> Part:
    """Seconds of each side, alternating, after one round that is not counted."""
    codec = load_codec(setup.model)
    runner = Runner(
        load_model(setup.model, dtype="bf16"),
        num_blocks=max(LENGTHS) // Runner.block_tokens,
        threads=setup.threads,
    )
    peer = importlib.import_module(PEER)
    sides: dict[str, Side] = {
        "pagoda": lambda tokens: _ours(runner, tokens),
        "sdpa": peer.Peer(setup.model, dtype="bfloat16", attention="sdpa").prefill,
        "eager": peer.Peer(setup.model, dtype="bfloat16", attention="eager").prefill,
    }
    lengths = (JUDGED_TOKENS,) if setup.quick else LENGTHS
    rows = []
    for tokens in lengths:
        say(f"prefill of {tokens} tokens")
        row = _compare(sides, prompt(codec, tokens=tokens, name="prefill"), setup.runs)
        rows.append(row | {"kernel": runner.kernel_id})
    runner.close()
    return Part(figures=[_figure(setup, row) for row in rows], rows=rows)


def _ours(runner: Runner, tokens: list[int]) -> int:
    blocks = range(-(-len(tokens) // runner.block_tokens))
    return int(chunks.prefill(runner, tokens, blocks, start=0).argmax())


def _compare(sides: dict[str, Side], tokens: list[int], runs: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    answers: dict[str, int] = {}
    for run in range(runs + 1):
        for name, side in sides.items():
            began_s = time.perf_counter()
            answers[name] = side(tokens)
            if run:
                seconds[name].append(time.perf_counter() - began_s)
    count = len(tokens)
    return {
        "tokens": count,
        "tokens_per_s": {
            name: asdict(Spread.of(count / second for second in taken))
            for name, taken in seconds.items()
        },
        "ratio": {
            name: asdict(paired_ratio(taken, seconds["pagoda"]))
            for name, taken in seconds.items()
            if name != "pagoda"
        },
        "next_token": answers,
    }


def _figure(setup: Setup, row: dict[str, Any]) -> Figure:
    ratio = row["ratio"]["sdpa"]["median"]
    judged = row["tokens"] == JUDGED_TOKENS
    return Figure(
        name=f"prefill of {row['tokens']} tokens, pagoda : transformers (sdpa)",
        value=ratio,
        unit="×",
        goal=f">= {GOAL_RATIO}" if judged else "informs",
        met=setup.judged(ratio >= GOAL_RATIO) if judged else None,
        detail=row,
    )
