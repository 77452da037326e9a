"""fp32 logits against transformers' eager attention, after every token of a prompt.

The prompt is computed in the engine's chunks. Each position's logits then come from a step
of one token, whose last block is a copy of its own, so that positions can be computed side
by side: it is the decoding path over the prefilled KV. The chunks' own last logits are
compared as well.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from pagoda.engine.codec import load_codec
from pagoda.engine.runner import Runner, Segment
from pagoda.engine.weights import load_model
from pagoda.lab.bench.engine import chunks
from pagoda.lab.bench.engine.prefill import PEER
from pagoda.lab.bench.engine.setup import Say, Setup, prompt
from pagoda.lab.bench.figures import Figure, Part

PROMPT_TOKENS = 1024
QUICK_TOKENS = 128
GOAL = 1e-4
SIDE_BY_SIDE = 32


def measure(setup: Setup, say: Say) -> Part:
    """The largest difference of any logit at any position."""
    tokens = QUICK_TOKENS if setup.quick else PROMPT_TOKENS
    say(f"fp32 logits of {tokens} positions")
    text = prompt(load_codec(setup.model), tokens=tokens, name="exact")
    theirs = (
        importlib.import_module(PEER)
        .Peer(setup.model, dtype="float32", attention="eager")
        .logits(text)
    )
    runner = Runner(
        load_model(setup.model, dtype="fp32"),
        num_blocks=tokens // Runner.block_tokens + SIDE_BY_SIDE,
        threads=setup.threads,
    )
    blocks = range(tokens // runner.block_tokens)
    last = chunks.prefill(runner, text, blocks, start=0)
    worst = 0.0
    for first in range(0, tokens, SIDE_BY_SIDE):
        positions = range(first, min(first + SIDE_BY_SIDE, tokens))
        ours = _steps(runner, text, positions)
        worst = max(worst, float(np.abs(ours - theirs[list(positions)]).max()))
    row: dict[str, Any] = {
        "tokens": tokens,
        "max_difference": worst,
        "max_difference_of_prefill": float(np.abs(last - theirs[-1]).max()),
        "largest_logit": float(np.abs(theirs).max()),
        "kernel": runner.kernel_id,
    }
    runner.close()
    figure = Figure(
        name=f"fp32 logits against transformers eager, {tokens} positions, largest difference",
        value=max(worst, row["max_difference_of_prefill"]),
        unit="",
        goal=f"<= {GOAL:g}",
        met=setup.judged(max(worst, row["max_difference_of_prefill"]) <= GOAL),
        detail=row,
    )
    return Part(figures=[figure], rows=[row])


def _steps(runner: Runner, text: Sequence[int], positions: Sequence[int]) -> chunks.Logits:
    """Logits after each position [positions, vocab], one step of one token each."""
    shared = len(text) // runner.block_tokens
    segments = []
    for number, position in enumerate(positions):
        whole = position // runner.block_tokens
        own = shared + number
        runner.block_view(own)[:] = runner.block_view(whole)
        table = [*range(whole), own]
        segments.append(
            Segment(tokens=[text[position]], start=position, blocks=table, want_logits=True)
        )
    logits: chunks.Logits = runner.forward(segments).numpy()
    return logits
