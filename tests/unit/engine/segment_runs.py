"""Running segments in tests: sequences with their own blocks, and what they leave behind."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from pagoda.engine.runner import Runner, Segment


def tokens_of(count: int, *, seed: int = 0, vocab: int = 199) -> list[int]:
    """Random token ids."""
    generator = random.Random(seed)
    return [generator.randrange(vocab) for _ in range(count)]


def blocks_for(tokens: int, *, runner: Runner, seed: int = 0) -> list[int]:
    """Enough distinct blocks for `tokens`, in no order."""
    count = -(-tokens // runner.block_tokens)
    return random.Random(seed).sample(range(runner.num_blocks), count)


def run_chunks(
    runner: Runner, tokens: Sequence[int], blocks: Sequence[int], ends: Sequence[int]
) -> torch.Tensor:
    """Compute `tokens` in chunks that stop at `ends`; logits of every chunk's last token."""
    logits, start = [], 0
    for end in ends:
        logits.append(runner.forward([Segment(tokens[start:end], start, blocks, True)]))
        start = end
    return torch.cat(logits)


def kv_bytes(runner: Runner, blocks: Sequence[int]) -> bytes:
    """The bytes of blocks, one after another."""
    return b"".join(bytes(runner.block_view(block)) for block in blocks)


def fill_pool(runner: Runner, value: int) -> None:
    """Set every byte of the pool; 0xFF is NaN in both dtypes."""
    for block in range(runner.num_blocks):
        view = runner.block_view(block)
        view[:] = bytes([value]) * len(view)
