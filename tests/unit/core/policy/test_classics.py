"""Policies of the literature keep exactly the blocks that their definitions keep."""

from __future__ import annotations

import random
from collections.abc import Callable

import naive_policies as naive
import numpy as np
import pytest

from pagoda.core.identity import ROOT
from pagoda.core.policy import REGISTRY, Policy, Request
from pagoda.core.policy.ema import Ema
from pagoda.core.policy.gdsf import Gdsf
from pagoda.lab.replay.one_tier import OneTier, key_of

NAIVE: dict[str, Callable[[int], naive.NaiveTier]] = {
    "lru-2": naive.NaiveLru2,
    "arc": naive.NaiveArc,
    "s3-fifo": naive.NaiveS3Fifo,
    "sieve": naive.NaiveSieve,
    "lfu": naive.NaiveLfu,
    "gdsf": naive.NaiveGdsf,
    "ema": naive.NaiveEma,
    "ema-literal": naive.NaiveEmaLiteral,
}


@pytest.mark.parametrize("capacity", [1, 5, 12, 40])
@pytest.mark.parametrize("name", NAIVE)
def test_it_keeps_what_its_definition_keeps(name: str, capacity: int) -> None:
    """After every request of random traces, under leases of the request's own prefix."""
    for seed in range(8):
        tier = OneTier(REGISTRY[name](capacity), capacity=capacity, block_tokens=naive.BLOCK_TOKENS)
        model = NAIVE[name](capacity)
        for number, request in enumerate(naive.requests(seed)):
            tier.replay(request)
            model.request(request)
            assert _held(tier) == {key_of(block) for block in model.here}, (seed, number)


@pytest.mark.parametrize("name", REGISTRY)
def test_asking_has_no_effect_on_what_comes(name: str) -> None:
    """A twin that is asked for victims before every request keeps the same blocks, though
    others than it named may go."""
    asked, alone = (_tier(REGISTRY[name]) for _ in range(2))
    rng = random.Random(1)
    for request in naive.requests(3):
        for _ in range(rng.randrange(3)):
            state = asked.residency.state
            asked.residency._policy.victims(rng.randint(1, 20), state.leases)
        published = alone.residency.state.published_slots()
        gone = rng.sample(published, len(published) // 3) if rng.random() < 0.3 else []
        for tier in (asked, alone):
            tier.residency.retire(gone)
            tier.replay(request)
        assert _held(asked) == _held(alone)


@pytest.mark.parametrize("name", REGISTRY)
def test_what_goes_for_other_reasons_is_forgotten(name: str) -> None:
    """Blocks that are dropped though they were no victims leave a sound order behind."""
    tier = _tier(REGISTRY[name])
    rng = random.Random(2)
    for request in naive.requests(4):
        tier.replay(request)
        published = tier.residency.state.published_slots()
        tier.residency.retire(rng.sample(published, len(published) // 4))
        tier.residency.check_invariants()
        count = tier.residency.state.published_count()
        victims = tier.residency._policy.victims(count, tier.residency.state.leases)
        assert sorted(victims) == sorted(tier.residency.state.published_slots())


def test_a_bad_block_does_not_age_the_rest() -> None:
    """GDSF: a hot block that is dropped for another reason leaves the age with the coldest, so
    that a new block still goes before one that was hit often."""
    policy = Gdsf(8)
    hot, warm, cold, new = (key_of(block) for block in range(4))
    policy.insert([0, 1, 2], [hot, warm, cold], [ROOT] * 3)
    for key, times in ((hot, 4), (warm, 3), (cold, 1)):
        for _ in range(times):
            policy.begin(Request(keys=[key], at_s=0.0, tokens=naive.BLOCK_TOKENS))
    policy.remove([0])
    policy.insert([3], [new], [ROOT])
    assert policy.victims(3, np.zeros(8, dtype=np.int32)) == [2, 3, 1]


def test_heat_is_forgotten_beyond_the_number_remembered() -> None:
    """The heat of a block that went is known until as many others as are remembered have
    gone after it: back in the tier, it then outlives one that was just used."""
    requests = naive.requests(5)
    kept = {}
    for remembered in (0, 1000):
        tier = _tier(lambda slots, n=remembered: Ema(slots, remembered=n))
        for request in requests:
            tier.replay(request)
        kept[remembered] = tier.hits.hit_tokens
        assert len(tier.residency._policy._gone) <= remembered
    assert kept[0] != kept[1000]


def _tier(policy: Callable[[int], Policy], capacity: int = 12) -> OneTier:
    return OneTier(policy(capacity), capacity=capacity, block_tokens=naive.BLOCK_TOKENS)


def _held(tier: OneTier) -> set[bytes]:
    state = tier.residency.state
    return {state.key_of(slot) for slot in state.published_slots()}
