"""What SGLang's separate pools hold.

Rules (SGLang, model_runner and pool_configurator; read 2026-12):

    attention only   tokens = available // bytes a token, rounded down to pages
    windows          two pools: full_tokens * (full + ratio * window bytes) = available,
                     window_tokens = ratio * full_tokens (ratio 0.8 by default)
    states           the state pool takes ratio / (1 + ratio) of the memory
                     (0.9 by default), attention the rest
"""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.core.sizing.capacity import Budget, Capacity
from pagoda.core.sizing.dtypes import KvDtype
from pagoda.core.sizing.layers import KvShape, Parallel


@dataclass(frozen=True, kw_only=True)
class PoolRatios:
    """SGLang's --swa-full-tokens-ratio and --mamba-full-memory-ratio."""

    window_tokens: float = 0.8
    state_memory: float = 0.9


def sglang_capacity(
    shape: KvShape,
    dtype: KvDtype,
    parallel: Parallel,
    budget: Budget,
    ratios: PoolRatios | None = None,
) -> Capacity:
    """Return what SGLang's pools make of `budget` on the fullest rank; a page is a block."""
    ratios = ratios or PoolRatios()
    full = shape.growth_bytes(dtype, parallel)
    window = shape.token_bytes(dtype, parallel) - full
    states = _state_count(shape, parallel, budget, ratios)
    memory = budget.available_bytes
    if states is not None:
        memory = int(memory / (1 + ratios.state_memory))
    charge = full + (ratios.window_tokens * window if full else window)
    tokens = int(memory / charge) if charge else 0
    blocks = tokens // budget.block_tokens
    by_tokens = blocks * budget.block_tokens / budget.max_model_len
    concurrency = by_tokens if states is None else min(by_tokens, float(states))
    state_bytes = shape.state_bytes(parallel, budget.speculative_tokens)
    return Capacity(
        blocks=blocks,
        block_tokens=budget.block_tokens,
        tokens=blocks * budget.block_tokens,
        concurrency=concurrency,
        bytes_per_token=round(charge),
        growth_bytes=full,
        request_bytes=round(charge * budget.max_model_len) + state_bytes,
        max_model_len=budget.max_model_len,
        assumptions=_notes(window if full else 0, states, ratios),
    )


def _state_count(
    shape: KvShape, parallel: Parallel, budget: Budget, ratios: PoolRatios
) -> int | None:
    """Return how many states fit their pool, or None for a model without states."""
    each = shape.state_bytes(parallel, budget.speculative_tokens)
    if not each:
        return None
    share = ratios.state_memory / (1 + ratios.state_memory)
    return int(budget.available_bytes * share) // each


def _notes(window: int, states: int | None, ratios: PoolRatios) -> tuple[str, ...]:
    notes = []
    if window:
        notes.append(
            f"SGLang's window pool has {ratios.window_tokens} times the full pool's tokens "
            "(--swa-full-tokens-ratio)"
        )
    if states is not None:
        notes.append(
            f"SGLang's state pool takes {ratios.state_memory}/(1 + {ratios.state_memory}) of the "
            f"memory: {states} states (--mamba-full-memory-ratio)"
        )
    return tuple(notes)
