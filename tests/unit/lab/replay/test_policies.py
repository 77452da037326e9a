"""Policies of a replay, by name."""

from __future__ import annotations

import pytest

from pagoda.core.errors import SettingsError
from pagoda.core.policy import REGISTRY
from pagoda.core.trace import Trace, TraceRequest
from pagoda.lab.replay.one_tier import OneTier
from pagoda.lab.replay.policies import BELADY, POLICIES, make_policy

_REQUESTS = [
    TraceRequest(at_s=0.0, input_tokens=4, output_tokens=0, prompt=(block,))
    for block in (0, 1, 2, 0, 1, 2, 0, 1, 2)
]
_TRACE = Trace(name="loop", block_tokens=4, requests=_REQUESTS)


def test_every_name_makes_a_policy_that_replays() -> None:
    """All that a live tier can have, and the bound."""
    assert set(POLICIES) == {*REGISTRY, BELADY}
    for name in POLICIES:
        tier = OneTier(make_policy(name, 2, _TRACE), capacity=2, block_tokens=4)
        assert [hits.requests for hits in tier.run(_REQUESTS)][-1] == len(_REQUESTS)


def test_the_bound_knows_the_future() -> None:
    """Of a loop over three blocks, two places keep one block for good and miss the others
    in turn, where least recently used misses all."""
    hits = {}
    for name in ("lru", BELADY):
        tier = OneTier(make_policy(name, 2, _TRACE), capacity=2, block_tokens=4)
        hits[name] = sum(tier.replay(request) // 4 for request in _REQUESTS)
    assert hits["lru"] == 0
    assert hits[BELADY] == 4


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    """The error names the policy, and what there is."""
    with pytest.raises(SettingsError, match=r"'mru' is unknown.*known: .*lru.*belady"):
        make_policy("mru", 2, _TRACE)
