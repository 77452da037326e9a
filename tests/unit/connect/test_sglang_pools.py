"""Which prefixes several pools can restore together, against the rules written out one by one."""

from __future__ import annotations

import random

import pytest
from sglang_fakes import PoolHitPolicy, PoolTransfer

from pagoda.connect.sglang.pools import restorable


def _serves(there: list[bool], transfer: PoolTransfer, length: int) -> bool:
    """Whether a pool can restore a prefix of so many pages, as SGLang says it must."""
    if transfer.hit_policy is PoolHitPolicy.ALL_PAGES:
        return all(there[page] for page in range(length))
    window = max(1, len(transfer.keys or []))
    return all(there[page] for page in range(max(0, length - window), length))


@pytest.mark.parametrize("seed", range(20))
def test_a_prefix_can_be_restored_when_every_pool_serves_it(seed: int) -> None:
    """Each length is judged for itself; a pool's own figure is its longest."""
    rng = random.Random(seed)
    for _ in range(50):
        pages = rng.randint(0, 9)
        transfers = [
            PoolTransfer(
                name,
                keys=["k"] * rng.randint(0, 4),
                hit_policy=rng.choice([PoolHitPolicy.ALL_PAGES, PoolHitPolicy.TRAILING_PAGES]),
            )
            for name in ("swa", "mamba", "indexer")[: rng.randint(0, 3)]
        ]
        found = {one.name: [rng.random() < 0.7 for _ in range(pages)] for one in transfers}
        served = {
            one.name: [n for n in range(1, pages + 1) if _serves(found[one.name], one, n)]
            for one in transfers
        }
        hits, lengths = restorable(pages, found, transfers)
        assert lengths == [
            n for n in range(1, pages + 1) if all(n in own for own in served.values())
        ]
        expected = {name: max(own) for name, own in served.items() if own}
        assert hits == expected | ({"kv": pages} if pages else {})


def test_a_pool_with_a_rule_that_is_not_known_restores_nothing() -> None:
    """What SGLang may need of it is not guessed."""
    transfer = PoolTransfer("swa", keys=["k"], hit_policy=PoolHitPolicy.BLOCK_GROUPS)
    assert restorable(3, {"swa": [True] * 3}, [transfer]) == ({"kv": 3}, [])
