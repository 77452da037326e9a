"""Which blocks an answer completes, in traces that name the blocks of prompts only.

The next turn of a conversation has the answer in its prompt, so its blocks bear there the names
that the answer's blocks had. Let a prompt of n tokens, answered with o, have f = n // size
whole blocks, and e = (n + o) // size with the answer. Its answer's blocks are the blocks f to e,
as far as they are whole, of the first later prompt that has the same first f blocks, has n + o
tokens or more, and goes on differently behind them: the block that the answer fills up is not
the one that the prompt left partly filled. Blocks that no later prompt names are never asked
for: each gets a number of its own. The same goes for all of them if f is 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pagoda.core.trace.chains import Chains
from pagoda.core.trace.model import TraceRequest


def with_generated(
    requests: Sequence[TraceRequest], *, block_tokens: int, chains: Chains
) -> list[TraceRequest]:
    """The requests, in order of arrival, with the blocks of their answers; `chains` has
    numbered those of their prompts."""
    followers = _Followers(requests, block_tokens)
    return [_answered(i, request, followers, chains) for i, request in enumerate(requests)]


def _answered(
    place: int, request: TraceRequest, followers: _Followers, chains: Chains
) -> TraceRequest:
    first, end = followers.answer_of(request)
    if first == end:
        return request
    follower = followers.first(place)
    named = () if follower is None else follower.prompt[first : min(end, followers.whole(follower))]
    return replace(request, generated=named + chains.fresh(end - first - len(named)))


class _Followers:
    """Finds the request that goes on where another one ended."""

    def __init__(self, requests: Sequence[TraceRequest], block_tokens: int) -> None:
        self._requests = requests
        self._block_tokens = block_tokens
        # Places of the requests by block, only of blocks that are the last whole one of a prompt
        # whose answer completes others.
        lasts = (self._last_whole(request) for request in requests)
        asked = {block for block in lasts if block is not None}
        self._places: defaultdict[int, list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            for block in asked.intersection(request.prompt):
                self._places[block].append(place)
        self._looked_at: defaultdict[int, int] = defaultdict(int)  # of those: not later any more

    def whole(self, request: TraceRequest) -> int:
        """How many blocks of a prompt are whole."""
        return request.input_tokens // self._block_tokens

    def answer_of(self, request: TraceRequest) -> tuple[int, int]:
        """From which block, and up to before which one, an answer's whole blocks lie."""
        tokens = request.input_tokens + request.output_tokens
        return self.whole(request), tokens // self._block_tokens

    def first(self, place: int) -> TraceRequest | None:
        """The request that goes on behind the one at `place`; to be asked in order of places."""
        request = self._requests[place]
        last = self._last_whole(request)
        if last is None:
            return None
        places = self._places[last]
        start = self._looked_at[last]
        while start < len(places) and places[start] <= place:
            start += 1
        self._looked_at[last] = start
        later = (self._requests[places[i]] for i in range(start, len(places)))
        return next((other for other in later if self._goes_on(request, other)), None)

    def _last_whole(self, request: TraceRequest) -> int | None:
        first, end = self.answer_of(request)
        return request.prompt[first - 1] if 0 < first < end else None

    def _goes_on(self, request: TraceRequest, other: TraceRequest) -> bool:
        first = self.whole(request)
        tail = request.prompt[first:]
        return other.input_tokens >= request.input_tokens + request.output_tokens and (
            not tail or other.prompt[first] != tail[0]
        )
