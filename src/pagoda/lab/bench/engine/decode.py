"""Decoding in a batch: the whole engine against transformers' own continuous batching."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from pagoda.lab.bench.engine.asking import ask_all
from pagoda.lab.bench.engine.prefill import PEER
from pagoda.lab.bench.engine.setup import MIB, Say, Setup, prompts
from pagoda.lab.bench.figures import Figure, Part
from pagoda.lab.bench.stats import Spread, paired_ratio
from pagoda.lab.bench.window import Decoded, agreement, decode_rate
from pagoda.serve.compose import open_engine

GOALS = {1: None, 8: 2.0, 32: 3.0}
PROMPT_TOKENS = (128, 512)
NEW_TOKENS = 64

Prompts = Sequence[Sequence[int]]
Side = Callable[[Prompts, int], list[Decoded]]


def measure(setup: Setup, say: Say) -> Part:
    """Tokens per second while the whole batch decodes, alternating.

    Pagoda runs twice: as it is served by default (host and drive tiers storing what is
    computed), which is judged, and without tiers.
    """
    peer = importlib.import_module(PEER).Peer(setup.model, dtype="bfloat16", attention="sdpa")
    tiered = open_engine(
        setup.settings(kv_bytes=1024 * MIB, host_bytes=512 * MIB, drive_bytes=1024 * MIB)
    )
    bare = open_engine(setup.settings(kv_bytes=1024 * MIB, host_bytes=0, drive_bytes=0))
    try:
        salts = iter(range(1_000_000))
        sides: dict[str, Side] = {
            "pagoda": lambda texts, count: _ours(tiered, texts, count, next(salts)),
            "pagoda without tiers": lambda texts, count: _ours(bare, texts, count, next(salts)),
            "transformers": lambda texts, count: peer.generate(texts, new_tokens=count),
        }
        rows = []
        for batch in (8,) if setup.quick else GOALS:
            say(f"decoding, batch of {batch}")
            texts = prompts(
                tiered.codec, count=batch, shortest=PROMPT_TOKENS[0], longest=PROMPT_TOKENS[1]
            )
            rows.append(_compare(sides, texts, setup))
    finally:
        tiered.close()
        bare.close()
    return Part(figures=[_figure(setup, row) for row in rows], rows=rows)


def _ours(engine: Any, texts: Prompts, new_tokens: int, salt: int) -> list[Decoded]:
    asked = ask_all(engine, texts, new_tokens=new_tokens, salt=f"run {salt}")
    return [one.decoded for one in asked]


def _compare(sides: dict[str, Side], texts: Prompts, setup: Setup) -> dict[str, Any]:
    rates: dict[str, list[float]] = {name: [] for name in sides}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    batches: dict[str, list[Decoded]] = {}
    for side in sides.values():  # not counted, and short: it makes caches and threads
        side(texts[:1], 4)
    for _ in range(setup.runs):
        for name, side in sides.items():
            batches[name] = side(texts, NEW_TOKENS)
            rates[name].append(decode_rate(batches[name]))
            seconds[name].append(_span_s(batches[name]))
    theirs = batches["transformers"]
    return {
        "batch": len(texts),
        "prompt_tokens": [len(text) for text in texts],
        "new_tokens": NEW_TOKENS,
        "decode_tokens_per_s": {name: asdict(Spread.of(rate)) for name, rate in rates.items()},
        "ratio": {
            name: asdict(paired_ratio(rates[name], rates["transformers"]))
            for name in sides
            if name != "transformers"
        },
        "first_to_last_token_s": {name: asdict(Spread.of(s)) for name, s in seconds.items()},
        "tokens_in_common": agreement(batches["pagoda"], theirs),
        "tokens_in_common_without_tiers": agreement(
            batches["pagoda"], batches["pagoda without tiers"]
        ),
    }


def _span_s(batch: Sequence[Decoded]) -> float:
    return max(one.moments_s[-1] for one in batch) - min(one.moments_s[0] for one in batch)


def _figure(setup: Setup, row: dict[str, Any]) -> Figure:
    goal = GOALS[row["batch"]]
    ratio = row["ratio"]["pagoda"]["median"]
    return Figure(
        name=f"decode at batch {row['batch']}, pagoda : transformers' continuous batching",
        value=ratio,
        unit="×",
        goal="informs" if goal is None else f">= {goal:g}",
        met=None if goal is None else setup.judged(ratio >= goal),
        detail=row,
    )
