"""The bound is the optimum: no choice of what to keep hits more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, takewhile

import naive_policies as naive
import pytest

from pagoda.core.policy import REGISTRY
from pagoda.core.policy.belady import Belady
from pagoda.core.trace import TraceRequest
from pagoda.lab.replay.one_tier import OneTier, key_of


@pytest.mark.parametrize("capacity", [1, 2, 3, 4])
def test_it_hits_as_much_as_the_best_of_all_choices(capacity: int) -> None:
    """On tiny traces, against an exhaustive search over what to keep after each request."""
    for seed in range(100):
        requests = _made_once(naive.requests(seed, 9, fan=2, depth=3))
        hits = _belady(requests, capacity).hits.hit_tokens // naive.BLOCK_TOKENS
        assert hits == _most_hits(requests, capacity), seed


@pytest.mark.parametrize("name", REGISTRY)
def test_no_policy_hits_more(name: str) -> None:
    """On longer traces, at several capacities."""
    for seed in range(5):
        requests = naive.requests(seed)
        for capacity in (3, 10, 30):
            tier = _replay(
                OneTier(REGISTRY[name](capacity), capacity=capacity, **_BLOCKS), requests
            )
            assert tier.hits.hit_tokens <= _belady(requests, capacity).hits.hit_tokens


def test_what_stays_is_prefix_closed() -> None:
    """A block that is used again has its parent beside it, after every request."""
    requests = naive.requests(7)
    tier = OneTier(Belady(9, _prompts(requests)), capacity=9, **_BLOCKS)
    parents = {}
    for number, request in enumerate(requests):
        chain = request.prompt + request.generated
        parents |= dict(zip(chain[1:], chain[:-1], strict=True))
        tier.replay(request)
        used = {block for later in requests[number + 1 :] for block in later.prompt}
        held = {
            block for block in parents if tier.residency.state.slot_of(key_of(block)) is not None
        }
        for block in held & used:
            assert tier.residency.state.slot_of(key_of(parents[block])) is not None


def test_it_lets_nothing_in_that_is_never_used_again() -> None:
    """The last request of a trace leaves an empty tier empty."""
    last = naive.requests(1, 1)
    assert _belady(last, 8).residency.state.published_count() == 0


_BLOCKS = {"block_tokens": naive.BLOCK_TOKENS}


def _made_once(requests: Sequence[TraceRequest]) -> list[TraceRequest]:
    """The same with no block in an answer that has been there before."""
    seen: set[int] = set()
    made: list[TraceRequest] = []
    for request in requests:
        new = tuple(takewhile(lambda block: block not in seen, request.generated))
        made.append(replace(request, generated=new))
        seen.update(request.prompt, new)
    return made


def _belady(requests: Sequence[TraceRequest], capacity: int) -> OneTier:
    policy = Belady(capacity, _prompts(requests))
    return _replay(OneTier(policy, capacity=capacity, **_BLOCKS), requests)


def _prompts(requests: Sequence[TraceRequest]) -> list[list[bytes]]:
    return [[key_of(block) for block in request.prompt] for request in requests]


def _replay(tier: OneTier, requests: Sequence[TraceRequest]) -> OneTier:
    for request in requests:
        tier.replay(request)
    return tier


def _most_hits(requests: Sequence[TraceRequest], capacity: int) -> int:
    """Hit blocks of the best choices: after each request, any blocks of the tier and of the
    request may stay, as many as there is room for."""
    best: dict[frozenset[int], int] = {frozenset(): 0}
    for request in requests:
        after: dict[frozenset[int], int] = {}
        for held, hits in best.items():
            found = hits + _prefix(request.prompt, held)
            for kept in _subsets(held | {*request.prompt, *request.generated}, capacity):
                after[kept] = max(after.get(kept, 0), found)
        best = after
    return max(best.values())


def _prefix(prompt: Sequence[int], held: frozenset[int]) -> int:
    count = 0
    while count < len(prompt) and prompt[count] in held:
        count += 1
    return count


def _subsets(blocks: frozenset[int], most: int) -> Iterator[frozenset[int]]:
    """Those of the greatest size are enough: keeping more never hurts."""
    yield from map(frozenset, combinations(sorted(blocks), min(most, len(blocks))))
