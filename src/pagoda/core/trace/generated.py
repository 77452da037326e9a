"""Which blocks an answer completes, in traces that name the blocks of prompts only.

The next turn of a conversation has the answer in its prompt, so its blocks bear there the names
that the answer's blocks had. Let a prompt of n tokens, answered with o, have f = n // size
whole blocks, and e = (n + o) // size with the answer. Its answer's blocks are the blocks f to e
of the first later prompt that has the same first f blocks, has n + o
tokens or more, and goes on differently behind them: the block that the answer fills up is not
the one that the prompt left partly filled. Blocks that no later prompt names are never asked
for: each gets a number of its own. The same goes for all of them if f is 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pagoda.core.trace.chains import Chains
from pagoda.core.trace.model import TraceRequest


def with_generated(
    requests: Sequence[TraceRequest], *, block_tokens: int, chains: Chains
) -> list[TraceRequest]:
    """The requests, in order of arrival, with the blocks of their answers; `chains` has
    numbered those of their prompts."""
    answered = []
    followers = _followers(requests, block_tokens)
    for request, follower in zip(requests, followers, strict=True):
        first, end = _answer(request, block_tokens)
        named = () if follower is None else follower.prompt[first:end]
        generated = named + chains.fresh(end - first - len(named))
        answered.append(replace(request, generated=generated) if generated else request)
    return answered


def _answer(request: TraceRequest, block_tokens: int) -> tuple[int, int]:
    """From which block, and up to before which one, an answer's whole blocks lie."""
    tokens = request.input_tokens + request.output_tokens
    return request.input_tokens // block_tokens, tokens // block_tokens


def _followers(requests: Sequence[TraceRequest], block_tokens: int) -> list[TraceRequest | None]:
    """For each request the first later one that goes on behind its answer."""
    lasts: list[int | None] = []  # each prompt's last whole block, if its answer completes others
    for request in requests:
        first, end = _answer(request, block_tokens)
        lasts.append(request.prompt[first - 1] if 0 < first < end else None)
    later = {block: _Later() for block in lasts if block is not None}
    found: list[TraceRequest | None] = []
    for request, last in zip(reversed(requests), reversed(lasts), strict=True):
        found.append(None if last is None else _follower(request, later[last], block_tokens))
        for block in later.keys() & request.prompt:
            later[block].add(request)
    return found[::-1]


def _follower(request: TraceRequest, later: _Later, block_tokens: int) -> TraceRequest | None:
    """The first one with that many tokens whose prompt does not keep a partly filled block."""
    first = request.input_tokens // block_tokens
    tail = request.prompt[first:]
    long_enough = later.at_least(request.input_tokens + request.output_tokens)
    return next((r for r in long_enough if not tail or r.prompt[first] != tail[0]), None)


class _Later:
    """The requests that have one block in their prompts, met from the last one to the first."""

    def __init__(self) -> None:
        self._met: list[TraceRequest] = []
        self._longest: list[int] = []  # places of those longer than all that were met after them

    def add(self, request: TraceRequest) -> None:
        """Meet one that is earlier than all others."""
        longest = self._longest
        while longest and self._met[longest[-1]].input_tokens <= request.input_tokens:
            longest.pop()
        longest.append(len(self._met))
        self._met.append(request)

    def at_least(self, tokens: int) -> Iterator[TraceRequest]:
        """Those met so far, in order of arrival, from the first one that has so many tokens."""
        count = bisect_right(self._longest, -tokens, key=lambda at: -self._met[at].input_tokens)
        start = self._longest[count - 1] if count else -1
        for at in range(start, -1, -1):
            if self._met[at].input_tokens >= tokens:
                yield self._met[at]
