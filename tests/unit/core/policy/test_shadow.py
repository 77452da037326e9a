"""Shadows hold what a tier would hold under one policy alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import naive_policies as naive
import numpy as np
import pytest
from heat_models import chain, key

from pagoda.core.identity import ROOT, Key
from pagoda.core.policy import Lru
from pagoda.core.policy.density import DensityOrder
from pagoda.core.policy.ghosts import Ghosts
from pagoda.core.policy.ledger import Ledger
from pagoda.core.policy.reuse import NEUTRAL, WORTHLESS, ReuseModel
from pagoda.core.policy.shadow import DensityShadow, LruShadow
from pagoda.core.policy.shared import SharedBlocks
from pagoda.core.policy.uses import RankedUses
from pagoda.lab.replay.one_tier import OneTier, key_of

SLOTS = 12
LEVELS = (WORTHLESS, 3, NEUTRAL)


@pytest.mark.parametrize("capacity", [8, 12, 25])
def test_it_hits_what_a_tier_under_lru_hits(capacity: int) -> None:
    """Request for request, on random traces whose requests fit in it and whose answers are
    new."""
    for seed in range(10):
        tier = OneTier(Lru(capacity), capacity=capacity, block_tokens=naive.BLOCK_TOKENS)
        shadow = LruShadow(capacity)
        for number, traced in enumerate(naive.requests(seed)):
            new = tuple(1000 + 2 * number + at for at in range(len(traced.generated)))
            keys = [key_of(block) for block in traced.prompt]
            hits = shadow.hits(keys)
            assert hits == tier.replay(replace(traced, generated=new)) // naive.BLOCK_TOKENS
            shadow.fill([*keys, *map(key_of, new)], None)


def test_the_block_beside_a_chain_goes_before_it() -> None:
    """It is the deepest of the prompt. Of a chain that does not fit, the head stays."""
    shadow = LruShadow(3)
    shadow.fill(chain(1, 2, 3), key(1, 2, 9))
    assert shadow.hits(chain(1, 2, 3)) == 3
    assert shadow.hits([key(1, 2, 9)]) == 0
    shadow.fill(chain(5, 6, 7, 8), None)
    assert shadow.hits(chain(5, 6, 7, 8)) == 3
    assert shadow.hits(chain(1)) == 0


def test_a_prefix_ends_at_the_first_hole() -> None:
    """Of what is there, and of what is remembered: none of none, all of all."""
    order, ghosts = _order(), Ghosts[None](9)
    there = [key(1), key(1, 2, 3), *chain(5, 6)]
    order.insert([3, 4, 5, 6], there, [ROOT, key(1, 2), *[ROOT, key(5)]])
    ghosts.put_all(there, None)
    for path, slots in (((1, 2, 3), [3]), ((), []), ((2,), []), ((5, 6), [5, 6])):
        assert order.prefix(chain(*path)) == slots
        assert ghosts.leading(chain(*path)) == len(slots)


def test_a_shadow_takes_an_order_over_and_leaves_the_ledger_alone() -> None:
    """Whatever then happens in it changes nothing in the blocks that the tier keeps, and the
    other way round; until something does, both name the same victims."""
    for seed in range(20):
        rng = random.Random(seed)
        order, other = (_walked(rng, 40) for _ in range(2))
        ledger, _ = Ledger.of(order)
        assert _victims(ledger.ordered()) == _victims(order)
        ledger, _ = Ledger.of(order)
        shadow, before = DensityShadow(SLOTS, order), _state(order)
        _fill(rng, shadow, order.uses.now_s)
        assert _state(ledger.ordered()) == before
        shadow, (ledger, _) = DensityShadow(SLOTS, other), Ledger.of(other)
        before = _state(shadow.order)
        _walk(rng, ledger.ordered(), 40)
        assert _state(shadow.order) == before


def test_a_shadow_is_never_overfull_and_never_torn() -> None:
    """It holds no more than its slots, each slot is free or taken once, the requests that come
    find what it says it holds, and no block stays without its parent."""
    for seed in range(20):
        rng = random.Random(seed)
        shadow = DensityShadow(SLOTS, _order())
        at_s = 0.0
        for _ in range(80):
            at_s += rng.choice([0.0, 0.3, 40.0])
            path = _path(rng)
            held = len(shadow.order.prefix(chain(*path)))
            use = shadow.order.begin(chain(*path), rng.choice(LEVELS), at_s)
            assert use.slots == held
            shadow.fill(chain(*path), None)
            shadow.order.end(use, rng.choice(LEVELS), beside=None)
            tracked = shadow.order.tracked()
            assert sorted([*shadow._free, *tracked]) == list(range(SLOTS))
            assert not shadow._held.any()
            for slot in tracked:
                parent = shadow.order.parent[slot]
                assert parent == ROOT or parent in shadow.order.slot_of


def test_a_shadow_refuses_what_is_worth_less() -> None:
    """As the tier does that it stands for: what there is, and is better, stays."""
    shadow = DensityShadow(4, _order())
    for path, level in (((1, 2), 30), ((3, 4), 30), ((5, 6), 2)):
        use = shadow.order.begin(chain(*path), level, 1.0)
        shadow.fill(chain(*path), None)
        shadow.order.end(use, level, beside=None)
    assert set(shadow.order.slot_of) == {*chain(1, 2), *chain(3, 4)}


def test_a_chain_longer_than_the_tier_leaves_its_head() -> None:
    """And a block beside it finds no room."""
    shadow = DensityShadow(3, _order())
    use = shadow.order.begin(chain(1, 2, 3, 4), NEUTRAL, 0.0)
    shadow.fill(chain(1, 2, 3, 4), (key(9), ROOT))
    shadow.order.end(use, NEUTRAL, beside=key(9))
    assert set(shadow.order.slot_of) == set(chain(1, 2, 3))


def test_a_block_beside_a_chain_has_its_parent_in_it() -> None:
    """So the parent does not go before it, as in the tier. Once it had none in the shadow, whose
    parent then was a leaf too early."""
    shadow = DensityShadow(9, _order())
    shadow.fill(chain(1, 2), (key(1, 2, 9), key(1, 2)))
    assert shadow.order.parent[shadow.order.slot_of[key(1, 2, 9)]] == key(1, 2)
    assert shadow.order.children == {key(1): 1, key(1, 2): 1}


def _order() -> DensityOrder:
    model = ReuseModel()
    model.scores = [[level / (1 + age) for age in range(30)] for level in range(40)]
    return DensityOrder(RankedUses(model), SharedBlocks())


def _path(rng: random.Random) -> list[int]:
    return [min(rng.randrange(3), rng.randrange(3)) for _ in range(rng.randint(1, 5))]


def _walked(rng: random.Random, steps: int) -> DensityOrder:
    order = _order()
    _walk(rng, order, steps)
    return order


def _walk(rng: random.Random, order: DensityOrder, steps: int) -> None:
    """Requests over a tree of blocks, some of them shared, in an order of SLOTS slots."""
    for _ in range(steps):
        keys = chain(*_path(rng))
        order._shared.used(keys[: rng.randrange(2)], order.uses.now_s, own=0)
        use = order.begin(keys, rng.choice(LEVELS), order.uses.now_s + rng.choice([0.0, 0.3, 9.0]))
        missing = [
            (k, p) for k, p in zip(keys, [ROOT, *keys], strict=False) if k not in order.slot_of
        ]
        wanted = len(order.tracked()) + len(missing) - SLOTS
        leases = np.zeros(SLOTS, dtype=np.int32)
        leases[[order.slot_of[k] for k in keys if k in order.slot_of]] = 1
        order.remove(order.victims(max(0, wanted), leases))
        free = sorted(set(range(SLOTS)) - order.tracked())[: len(missing)]
        new = missing[: len(free)]
        order.insert(free, [k for k, _ in new], [p for _, p in new])
        order.end(use, rng.choice(LEVELS), beside=None)


def _fill(rng: random.Random, shadow: DensityShadow, at_s: float) -> None:
    for _ in range(40):
        keys = chain(*_path(rng))
        at_s += 1.0
        use = shadow.order.begin(keys, rng.choice(LEVELS), at_s)
        shadow.fill(keys, None)
        shadow.order.end(use, rng.choice(LEVELS), beside=None)


def _victims(order: DensityOrder) -> list[int]:
    return order.victims(SLOTS, np.zeros(SLOTS, dtype=np.int32))


def _state(order: DensityOrder) -> Sequence[object]:
    """All that an order says of its blocks and their uses."""
    uses = {slot: (use.level, use.at_s, use.bin, use.slots) for slot, use in order.use.items()}
    filed = [[[*use.leaves] for _, use in bucket] for _, bucket in order.uses.ascending()]
    waiting: set[Key] = set(order._awaited)
    tables = (order.slot_of, order.parent, order.children, order.heat)
    counted = [uses, filed, waiting, order.uses.now_s, *map(dict, tables)]
    return [*counted, list(order.warm), _victims(order)]
