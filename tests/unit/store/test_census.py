"""Sums over whole tables, beside sums over one block at a time."""

from __future__ import annotations

import random
from typing import NamedTuple

from store_harness import SIZE, Harness

from pagoda.core.holdings import Selection
from pagoda.core.identity import ROOT, Key, NamespaceId
from pagoda.store import census
from pagoda.store.block import Block
from pagoda.store.catalogue import Catalogue


class One(NamedTuple):
    """A block as the naive sums see it."""

    name: NamespaceId
    depth: int
    created_s: int


def test_holdings_are_the_sums_of_their_blocks() -> None:
    """Of every namespace that has a block, and of no other, whatever was there before."""
    rng = random.Random(3)
    harness = Harness(upper=0, lower=64)
    names = [NamespaceId(bytes([n]) * 32) for n in range(7)]
    blocks = []
    for number in range(60):
        harness.clock.advance(rng.randrange(5))
        one = One(rng.choice(names), rng.randrange(40), harness.clock.wall_ms() // 1000)
        key = Key(number.to_bytes(32, "big"))
        payload = memoryview(bytearray(SIZE))
        block = Block(
            namespace=one.name, key=key, parent=ROOT, depth=one.depth, tokens=16, payload=payload
        )
        harness.store.save([block], lambda block: None)
        harness.settle()
        blocks.append((key, one))
    (level,) = harness.store.levels()
    gone = [harness.slot("lower", key) for key, one in blocks if one.name == names[2]]
    harness.store.discard(level, gone)
    harness.settle()
    for before_s in (None, blocks[30][1].created_s):
        left: dict[NamespaceId, list[One]] = {}
        for _, one in blocks:
            if one.name != names[2] and (before_s is None or one.created_s < before_s):
                left.setdefault(one.name, []).append(one)
        found = census.holdings(
            level, Catalogue([]), Selection(before_s=before_s), generation="", block_tokens=16
        )
        assert {
            (h.namespace, h.blocks, h.size_bytes, h.longest_chain, h.oldest_s, h.newest_s)
            for h in found
        } == {sums(name, some) for name, some in left.items()}


def sums(name: NamespaceId, some: list[One]) -> tuple[object, ...]:
    """One block after the other."""
    ages = [one.created_s for one in some]
    deepest = max(one.depth for one in some)
    return name.hex(), len(some), len(some) * SIZE, deepest + 1, min(ages), max(ages)
