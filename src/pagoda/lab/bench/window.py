"""Decoding speed of a batch, from the moments of its tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One continued prompt: its new tokens and the moment of each, in seconds."""

    tokens: tuple[int, ...]
    moments_s: tuple[float, ...]


def decode_rate(batch: Sequence[Decoded]) -> float:
    """Tokens per second while the whole batch decodes.

    The window opens when the last prompt has its first token and shuts when the first
    sequence has its last: in between every sequence decodes and nobody prefills.
    """
    opens_s = max(one.moments_s[0] for one in batch)
    shuts_s = min(one.moments_s[-1] for one in batch)
    assert opens_s < shuts_s, "the prompts never decoded all at once: ask for more tokens"
    inside = sum(opens_s < at_s <= shuts_s for one in batch for at_s in one.moments_s)
    return inside / (shuts_s - opens_s)


def agreement(left: Sequence[Decoded], right: Sequence[Decoded]) -> float:
    """The share of tokens up to the first difference, in the mean over the batch; 1 is equal."""
    shares = [_common(a.tokens, b.tokens) for a, b in zip(left, right, strict=True)]
    return sum(shares) / len(shares)


def _common(left: Sequence[int], right: Sequence[int]) -> float:
    longest = max(len(left), len(right))
    same = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        same += 1
    return same / longest if longest else 1.0
