"""Clearing: what is gone when the answer comes, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from admin_harness import WIDTH, AdminHarness
from store_harness import SIZE, truth

from pagoda.core.holdings import (
    PrefetchState,
    Scope,
    lineage,
)
from pagoda.core.identity import Key
from pagoda.core.outcome import Hit
from pagoda.core.state import SlotState


def test_clearing_a_tenant_leaves_no_header_of_it_and_all_others(admin: AdminHarness) -> None:
    """Read back from both media: nothing of the tenant, everything of the rest."""
    theirs = admin.put(admin.tokens(1, 5), salt="a")
    ours = admin.put(admin.tokens(1, 5))
    admin.compute(admin.tokens(1, 3), salt="a")
    mine = admin.compute(admin.tokens(2, 3))
    admin.settle()
    cleared = admin.clear(Scope(salt="a"))
    assert cleared.verified
    assert cleared.dropped == {"device": 3, "upper": 5, "lower": 5}
    assert {(s.tier, s.headers, s.left, s.newer) for s in cleared.scans} == {
        ("upper", 5, 0, 0),
        ("lower", 5, 0, 0),
    }
    assert admin.found(theirs) == 0
    assert admin.found(ours) == 5
    assert admin.device.state.prefix(mine)
    assert admin.on_medium() == 10


def test_headers_of_evicted_blocks_are_erased_as_well(admin: AdminHarness) -> None:
    """An evicted block's header stays on the medium, and a restart would find it again."""
    keys = admin.put(admin.tokens(1, 4), salt="a")
    other = admin.put(admin.tokens(1, 4), salt="b")
    admin.settle()
    for level in admin.store.levels():
        level.residency.retire([level.state.slot_of(key) for key in [*keys, *other]])
    cleared = admin.clear(Scope(salt="a"))
    assert (cleared.verified, cleared.erased, cleared.dropped) == (True, 8, {})
    admin.restart()
    assert admin.found(keys) == 0
    assert admin.found(other) == 4, "what others left there is not touched"


def test_blocks_on_their_way_into_a_tier_are_cleared_too(admin: AdminHarness) -> None:
    """Queued, being written, or waiting for the lower tier when the clearing begins."""
    theirs = admin.put(admin.tokens(1, 30), salt="a")
    ours = admin.put(admin.tokens(2, 30))
    told = []
    admin.admin.clear(Scope(salt="a"), told.append)
    while not told:
        admin.clock.advance(1)
        admin.store.poll()
        admin.admin.poll()
        admin.executor.step()
    admin.settle()
    assert told[0].verified
    assert all(scan.newer == 0 for scan in told[0].scans)
    assert admin.found(theirs) == 0
    assert admin.found(ours) == 30, "nobody else's pending blocks are dropped"
    assert len(list(admin.lower.scan())) == 30


def test_what_a_tenant_computes_after_the_clearing_stays(admin: AdminHarness) -> None:
    """A request that came later is not part of what was asked to go."""
    admin.put(admin.tokens(1), salt="a")
    admin.settle()
    told = []
    admin.admin.clear(Scope(salt="a"), told.append)
    admin.clock.advance(5)
    later = admin.put(admin.tokens(2), salt="a")
    admin.settle()
    assert told[0].verified
    assert sum(scan.newer for scan in told[0].scans) in {0, 4, 8}
    assert admin.found(later) == 4


def test_clearing_a_prefix_takes_its_end_and_what_continues_it(admin: AdminHarness) -> None:
    """Shared beginnings stay; other tenants' copies of the same text as well."""
    trunk = admin.tokens(1, 4)
    left = admin.put([*trunk, *range(100, 100 + 3 * WIDTH)])
    right = admin.put([*trunk, *range(500, 500 + 3 * WIDTH)])
    theirs = admin.put(trunk, salt="a")
    on_device = admin.compute([*trunk, *range(100, 100 + 3 * WIDTH), *range(WIDTH)])
    admin.settle()
    cleared = admin.clear(Scope(prompt=tuple([*trunk, *range(100, 100 + WIDTH)])))
    assert cleared.verified
    assert (admin.found(left), admin.found(right), admin.found(theirs)) == (4, 7, 4)
    assert len(admin.device.state.prefix(on_device)) == 4
    assert cleared.dropped == {"device": 4, "upper": 3, "lower": 3}
    assert admin.clear(Scope(prompt=tuple(trunk))).verified
    assert (admin.found(left), admin.found(right), admin.found(theirs)) == (3, 3, 4)


def test_a_prefix_whose_chain_lies_in_pieces_is_followed(admin: AdminHarness) -> None:
    """Links of all tiers together lead from block to block."""
    keys = admin.put(admin.tokens(1, 6))
    admin.settle()
    upper, lower = admin.store.levels()
    upper.residency.retire([upper.state.slot_of(key) for key in keys[1:4]])
    upper.sealed.free([s for s, h in admin.upper.scan() if upper.state.key_of(s) is None])
    admin.store.discard(lower, [lower.state.slot_of(key) for key in (keys[0], *keys[4:])])
    admin.settle()
    cleared = admin.clear(Scope(prompt=tuple(admin.tokens(1, 6)[:WIDTH])))
    assert cleared.verified
    assert admin.on_medium() == 0


def test_clearing_by_age_spares_the_young(admin: AdminHarness) -> None:
    """Older than asked: strictly."""
    old = admin.put(admin.tokens(1))
    admin.settle()
    admin.clock.advance(60)
    young = admin.put(admin.tokens(2))
    admin.settle()
    assert admin.clear(Scope(older_than_s=30)).verified
    assert (admin.found(old), admin.found(young)) == (0, 4)
    assert not any(admin.clear(Scope(older_than_s=30)).dropped.values())


def test_clearing_everything_empties_the_media(admin: AdminHarness) -> None:
    """Whatever the tenant, known or not."""
    admin.put(admin.tokens(1))
    admin.put(admin.tokens(2), salt="a", known=False)
    admin.compute(admin.tokens(3))
    admin.settle()
    assert admin.clear(Scope()).verified
    assert admin.on_medium() == 0
    assert admin.store.counts() == {"upper": 0, "lower": 0}
    assert admin.device.cached() == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_was_being_written_is_gone_when_the_answer_comes(tmp_path: Path, seed: int) -> None:
    """Killed right after it, with whatever order of I/O before, the process leaves no header."""
    admin = AdminHarness(tmp_path, seed=seed)
    keys = admin.put(admin.tokens(1, 30))
    for _ in range(seed % 4):
        admin.executor.step()
        admin.store.poll()
    assert admin.clear_to_the_answer(Scope()).verified
    assert admin.on_medium() == 0
    admin.open()
    assert admin.found(keys) == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_prefetch_brings_nothing_back_after_the_answer(tmp_path: Path, seed: int) -> None:
    """It had read the blocks when they were to go, and stored them afterwards."""
    admin = AdminHarness(tmp_path, seed=seed)
    keys = admin.put(admin.tokens(1))
    admin.settle()
    upper = admin.store.levels()[0]
    admin.store.discard(upper, upper.state.published_slots())
    admin.settle()
    admin.admin.prefetch(admin.tokens(1), "")
    assert admin.clear_to_the_answer(Scope()).verified
    admin.settle()
    assert admin.found(keys) == admin.on_medium() == 0
    (after,) = admin.admin.prefetches()
    assert (after.state, after.done) == (PrefetchState.STOPPED, 0)


def test_a_block_that_left_service_under_its_reader_is_not_waited_for(admin: AdminHarness) -> None:
    """As after a late read: no key leads to it, its header stands, and its slot is not free
    before the reader has let go. The header goes nevertheless; the slot stays the reader's."""
    keys = admin.put(admin.tokens(1))
    admin.settle()
    lower = admin.store.levels()[1]
    slots = [admin.slot("lower", key) for key in keys]
    lower.state.lease(slots)
    lower.residency.retire(slots)
    assert admin.clear(Scope()).verified
    assert admin.on_medium() == 0
    assert {lower.state.state_of(slot) for slot in slots} == {SlotState.RETIRING}
    lower.state.release(slots)
    assert {lower.state.state_of(slot) for slot in slots} == {SlotState.FREE}


def test_a_block_in_use_goes_when_its_reader_is_done(admin: AdminHarness) -> None:
    """A lease holds the slot; the key leads nowhere from the start. A read that began before
    gets its bytes or nothing."""
    keys = admin.put(admin.tokens(1))
    admin.settle()
    held = admin.compute(admin.tokens(1), held=True)
    restore, buffers = admin.start(keys)
    told = []
    admin.admin.clear(Scope(salt=""), told.append)
    assert admin.found(keys) == 0
    assert admin.device.state.prefix(held) == []
    admin.settle()
    for key, outcome, buffer in zip(keys, restore.outcomes, buffers, strict=True):
        expected = bytes(truth(key)) if outcome == Hit("upper") else bytes(SIZE)
        assert bytes(buffer) == expected
    assert told[0].verified
    assert admin.device.state.lease_count() == 4, "the running request keeps its blocks"
    admin.device.give_back(range(4))


def test_lineage_follows_branches_and_ends_in_cycles() -> None:
    """Every block below the root and no other, whatever the links say."""
    a, b, c, d, e = (Key(bytes([n]) * 32) for n in range(1, 6))
    assert lineage([(b, a), (c, b), (d, b), (e, a)], b) == {b, c, d}
    assert lineage([(b, a), (a, b)], a) == {a, b}
    assert lineage([], a) == {a}
