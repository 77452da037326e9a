"""Hints from an oracle that is right with a stated chance: does a session go on?"""

from __future__ import annotations

import random
from dataclasses import replace

from pagoda.core.policy import Hint
from pagoda.core.trace import Trace


def alive(trace: Trace) -> list[bool]:
    """Of each request, whether a later one extends its prefix: has all whole blocks of its
    prompt, and a longer prompt. A prompt without a whole block has nothing to be known by."""
    longest: dict[int, int] = {}  # tokens of the longest later prompt that has this block
    found: list[bool] = []
    for request in reversed(trace.requests):
        whole = request.input_tokens // trace.block_tokens
        tokens = request.input_tokens
        found.append(whole > 0 and longest.get(request.prompt[whole - 1], 0) > tokens)
        for block in request.prompt:
            longest[block] = max(tokens, longest.get(block, 0))
    return found[::-1]


def with_hints(trace: Trace, *, accuracy: float, seed: int) -> Trace:
    """The trace with the truth of `alive` as each request's hint, alive or closed; told wrong
    with the chance 1 - accuracy. A seed gives the same hints for ever."""
    rng = random.Random(seed)  # noqa: S311 - an experiment, no secret
    hinted = [
        replace(request, hint=Hint.ALIVE if truth == (rng.random() < accuracy) else Hint.CLOSED)
        for request, truth in zip(trace.requests, alive(trace), strict=True)
    ]
    return replace(trace, requests=hinted)
