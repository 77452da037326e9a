"""Recent window: what lies outside of every window goes first."""

from __future__ import annotations

import naive_policies as naive

from pagoda.core.policy.recent_window import RecentWindow
from pagoda.core.trace import TraceRequest
from pagoda.lab.replay.one_tier import OneTier, key_of

_SLOTS = 64


def test_the_newest_tokens_of_each_sequence_go_last() -> None:
    """The order of victims has all blocks of no window before all blocks of one, for windows
    of two blocks at the ends of the sequences so far."""
    for seed in range(5):
        tier = _tier(2 * naive.BLOCK_TOKENS)
        window: dict[int, bool] = {}
        for request in naive.requests(seed, 60, depth=5):
            tier.replay(request)
            chain = request.prompt + request.generated
            window |= {block: place >= len(chain) - 2 for place, block in enumerate(chain)}
            within = [window[block] for block in _order(tier, window)]
            assert within == sorted(within)


def test_a_head_goes_before_its_tail() -> None:
    """Of one long sequence, all but its window goes first, and of that the deepest first."""
    tier = _tier(2 * naive.BLOCK_TOKENS)
    tier.replay(_request(0, 1, 2, 3, 4))
    assert _order(tier, range(5)) == [2, 1, 0, 4, 3]


def test_a_request_that_ends_earlier_brings_the_window_back() -> None:
    """A block that a sequence had grown past is in the window of one that ends in it."""
    tier = _tier(naive.BLOCK_TOKENS)
    tier.replay(_request(0, 1, 2))
    tier.replay(_request(0, 1))
    assert _order(tier, range(3)) == [0, 2, 1]


def _tier(window_tokens: int) -> OneTier:
    policy = RecentWindow(_SLOTS, window_tokens=window_tokens)
    return OneTier(policy, capacity=_SLOTS, block_tokens=naive.BLOCK_TOKENS)


def _order(tier: OneTier, blocks: object) -> list[int]:
    """All blocks, the first victim first."""
    state = tier.residency.state
    slots = {state.slot_of(key_of(block)): block for block in blocks}
    return [slots[slot] for slot in tier.residency._policy.victims(_SLOTS, state.leases)]


def _request(*prompt: int) -> TraceRequest:
    tokens = len(prompt) * naive.BLOCK_TOKENS
    return TraceRequest(at_s=0.0, input_tokens=tokens, output_tokens=0, prompt=prompt)
