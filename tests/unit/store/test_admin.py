"""Administration: what is where, clearing, times to live and prefetching, promise by promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_harness import NEW_WEIGHTS, SERVED, WIDTH, AdminHarness
from store_harness import SIZE, truth

from pagoda.core.errors import RequestError, TierFault
from pagoda.core.events import Degraded, Reason
from pagoda.core.holdings import (
    SHARED,
    UNKNOWN,
    Place,
    Prefetched,
    PrefetchState,
    Scope,
    Standing,
    TierStatus,
    Ttl,
    lineage,
    tenant_id,
)
from pagoda.core.identity import Key
from pagoda.core.outcome import Hit
from pagoda.core.state import SlotState
from pagoda.store.level import Level
from pagoda.store.trust import Fence
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminHarness]:
    """64 blocks in each tier, 16 on the device."""
    harness = AdminHarness(tmp_path)
    yield harness
    harness.executor.unhold()
    harness.settle()
    assert harness.admin.idle
    harness.store.check_invariants()
    harness.device.residency.check_invariants()


def found(harness: AdminHarness, keys: list[Key]) -> int:
    """Blocks that a request would find in the tiers."""
    return harness.store.match(keys)


# What is there.


def test_holdings_tell_tier_tenant_size_and_age(admin: AdminHarness) -> None:
    """One line a namespace in each tier, tenants by a digest of their salt."""
    admin.put(admin.tokens(1, 3))
    admin.settle()
    admin.clock.advance(10)
    admin.put(admin.tokens(2, 5), salt="alice")
    admin.put(admin.tokens(3, 1), salt="alice")
    admin.compute(admin.tokens(2, 2), salt="alice")
    admin.settle()
    lines = admin.admin.holdings(Scope())
    assert [(h.tier, h.tenant, h.blocks, h.tokens, h.longest_chain) for h in lines] == [
        ("device", tenant_id("alice"), 2, 2 * WIDTH, 2),
        ("upper", tenant_id("alice"), 6, 6 * WIDTH, 5),
        ("upper", SHARED, 3, 3 * WIDTH, 3),
        ("lower", tenant_id("alice"), 6, 6 * WIDTH, 5),
        ("lower", SHARED, 3, 3 * WIDTH, 3),
    ]
    assert all(line.size_bytes == line.blocks * SIZE and line.current for line in lines)
    assert lines[1].oldest_s - lines[2].newest_s == 10
    assert "alice" not in str(lines)


def test_holdings_can_be_narrowed(admin: AdminHarness) -> None:
    """By tenant, by namespace's beginning, by age; and by all of them together."""
    admin.put(admin.tokens(1))
    admin.settle()
    admin.clock.advance(100)
    admin.put(admin.tokens(2), salt="a")
    admin.settle()
    name = SERVED.namespace_of("a").hex()

    def tenants(scope: Scope) -> set[str]:
        return {line.tenant for line in admin.admin.holdings(scope)}

    assert tenants(Scope(tenant=tenant_id("a"))) == {tenant_id("a")}
    assert tenants(Scope(salt="a")) == {tenant_id("a")}
    assert tenants(Scope(namespace=name[:8])) == {tenant_id("a")}
    assert tenants(Scope(older_than_s=50)) == {SHARED}
    assert tenants(Scope(older_than_s=50, salt="a")) == set()
    assert tenants(Scope(salt="nobody")) == set()


@pytest.mark.parametrize(
    ("scope", "code"),
    [
        (Scope(tenant="0" * 16), "not_found"),
        (Scope(namespace="ffff"), "not_found"),
        (Scope(namespace=""), "invalid_value"),
        (Scope(prompt=(1, 2, 3)), "invalid_value"),
    ],
)
def test_a_scope_that_names_nothing_is_refused(
    admin: AdminHarness, scope: Scope, code: str
) -> None:
    """Nothing is cleared by a slip: an unknown tenant, an ambiguous namespace, half a block."""
    admin.put(admin.tokens(1))
    admin.put(admin.tokens(2), salt="a")
    admin.settle()
    with pytest.raises(RequestError) as refused:
        admin.admin.clear(scope, lambda cleared: None)
    assert refused.value.code == code
    assert admin.store.counts() == {"upper": 8, "lower": 8}


def test_a_lookup_says_where_and_touches_nothing(admin: AdminHarness) -> None:
    """Tokens by the fastest tier that holds them; the order of eviction stays as it was."""
    prompt = admin.tokens(1, 6)
    keys = admin.put(prompt)
    admin.settle()
    admin.compute(prompt[: 2 * WIDTH])
    upper = admin.store.levels()[0]
    upper.residency.retire([admin.slot("upper", key) for key in keys[4:]])
    policy = upper.residency._policy
    order = policy.victims(64, upper.state.leases)
    looked = admin.admin.lookup([*prompt, 7], "")
    assert (looked.prompt_tokens, looked.resident_tokens) == (6 * WIDTH + 1, 6 * WIDTH)
    assert looked.places == (
        Place(tier="device", held=2 * WIDTH, first=2 * WIDTH),
        Place(tier="upper", held=4 * WIDTH, first=2 * WIDTH),
        Place(tier="lower", held=6 * WIDTH, first=2 * WIDTH),
    )
    assert policy.victims(64, upper.state.leases) == order
    assert upper.state.lease_count() == 0
    assert admin.admin.lookup(prompt, "other").resident_tokens == 0, "a salt is another tenant"


def test_tiers_tell_how_they_stand(admin: AdminHarness) -> None:
    """Serving, fenced by what it does, draining because somebody said so, lost at the start; the
    graver word goes first. What a draining tier holds is read, and nothing is added to it."""
    keys = admin.put(admin.tokens(1))
    admin.settle()

    def standings() -> list[str]:
        return [status.standing for status in admin.admin.tiers()]

    lower = admin.store.levels()[1]
    assert standings() == ["serving", "serving"]
    lower.trust.fence(Fence.SPACE, Reason.FULL, "full")
    assert standings() == ["serving", "fenced"]
    drained = admin.admin.drain("lower")
    assert drained == TierStatus(
        tier="lower",
        standing=Standing.DRAINING,
        blocks=4,
        slots=64,
        policy="heat",
        leader="lru",
    )
    assert standings() == ["serving", "draining"]
    admin.put(admin.tokens(2))
    admin.settle()
    assert admin.store.counts() == {"upper": 8, "lower": 4}
    assert found(admin, keys) == 4
    lower.trust.lose("gone")
    assert standings() == ["serving", "lost"]
    with pytest.raises(RequestError, match="upper, lower") as refused:
        admin.admin.drain("device")
    assert refused.value.code == "not_found"


def test_what_lies_behind_a_gap_is_held_but_not_resident(admin: AdminHarness) -> None:
    """A prefix ends at the first block that no tier holds."""
    keys = admin.put(admin.tokens(1, 4))
    admin.settle()
    for level in admin.store.levels():
        level.residency.retire([level.state.slot_of(keys[1])])
    looked = admin.admin.lookup(admin.tokens(1, 4), "")
    assert looked.resident_tokens == WIDTH
    assert [place.held for place in looked.places] == [0, 3 * WIDTH, 3 * WIDTH]


# Clearing.


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
    assert found(admin, theirs) == 0
    assert found(admin, ours) == 5
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
    assert found(admin, keys) == 0
    assert found(admin, other) == 4, "what others left there is not touched"


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
    assert found(admin, theirs) == 0
    assert found(admin, ours) == 30, "nobody else's pending blocks are dropped"
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
    assert found(admin, later) == 4


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
    assert (found(admin, left), found(admin, right), found(admin, theirs)) == (4, 7, 4)
    assert len(admin.device.state.prefix(on_device)) == 4
    assert cleared.dropped == {"device": 4, "upper": 3, "lower": 3}
    assert admin.clear(Scope(prompt=tuple(trunk))).verified
    assert (found(admin, left), found(admin, right), found(admin, theirs)) == (3, 3, 4)


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
    assert (found(admin, old), found(admin, young)) == (0, 4)
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
    assert found(admin, keys) == 0


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
    assert found(admin, keys) == admin.on_medium() == 0
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
    assert found(admin, keys) == 0
    assert admin.device.state.prefix(held) == []
    admin.settle()
    for key, outcome, buffer in zip(keys, restore.outcomes, buffers, strict=True):
        expected = bytes(truth(key)) if outcome == Hit("upper") else bytes(SIZE)
        assert bytes(buffer) == expected
    assert told[0].verified
    assert admin.device.state.lease_count() == 4, "the running request keeps its blocks"
    admin.device.give_back(range(4))


def test_a_clearing_that_cannot_erase_says_so(admin: AdminHarness) -> None:
    """A medium that keeps its headers is not called clear."""
    keys = admin.put(admin.tokens(1), salt="a")
    admin.settle()
    admin.lower.faults.erase_error = TierFault("no", tier="lower")
    cleared = admin.clear(Scope(salt="a"))
    assert not cleared.verified
    assert {scan.tier: scan.left for scan in cleared.scans} == {"upper": 0, "lower": 4}
    assert found(admin, keys) == 0, "it cannot be found nevertheless"
    admin.lower.faults.clear()


def test_a_clearing_does_not_wait_for_ever(admin: AdminHarness) -> None:
    """A tier that hangs: not verified, after five minutes."""
    admin.put(admin.tokens(1), salt="a")
    admin.settle()
    told = []
    admin.admin.clear(Scope(salt="a"), told.append)
    admin.executor.hold()
    admin.clock.advance(301)
    admin.settle()
    assert [cleared.verified for cleared in told] == [False]
    assert {scan.left for scan in told[0].scans} == {None}, "nobody has read what is left"
    admin.executor.unhold()
    admin.settle()
    assert len(told) == 1


def test_clearing_everything_does_not_wait_for_a_shared_store_that_hangs(tmp_path: Path) -> None:
    """Its run under way keeps its slots, but not their headers: verified, and not served."""
    admin = AdminHarness(tmp_path, shared=FaultyShared(MemoryShared()))
    keys = share_and_hang(admin)
    held = admin.store.levels()[-1].state.lease_count()
    assert held > 0, "the run holds the blocks it is to send"
    cleared = admin.clear(Scope())
    assert (cleared.verified, cleared.untouched) == (True, ("remote",))
    assert found(admin, keys) == 0
    assert admin.store.levels()[-1].state.lease_count() == held
    admin.executor.unhold()
    admin.settle()
    admin.store.check_invariants()


def test_a_header_that_only_a_hanging_run_still_holds_is_erased(tmp_path: Path) -> None:
    """Its slot had left service before, and cannot be free until the shared store answers."""
    admin = AdminHarness(tmp_path, shared=FaultyShared(MemoryShared()))
    share_and_hang(admin)
    lower = admin.store.levels()[-1]
    lower.residency.retire(lower.state.published_slots())
    cleared = admin.clear(Scope())
    assert cleared.verified
    assert {scan.tier: scan.left for scan in cleared.scans} == {"upper": 0, "lower": 0}
    admin.executor.unhold()
    admin.settle()
    admin.store.check_invariants()


def test_a_shared_store_that_hangs_leaves_no_healthy_tier_open(tmp_path: Path) -> None:
    """Only the run's own order is stuck: memory and drive are closed."""
    admin = AdminHarness(tmp_path, shared=FaultyShared(MemoryShared()))
    share_and_hang(admin)
    closed: list[str] = []
    for tier in (admin.upper, admin.lower):
        tier.close = lambda name=tier.name: closed.append(name)
    admin.executor.wait = lambda timeout_s: admin.clock.advance(1) or admin.executor.step()
    admin.store.close(flush_s=1.0)
    assert sorted(closed) == ["lower", "upper"]
    assert not [event for event in admin.told(Degraded) if "left open" in event.detail]


def share_and_hang(admin: AdminHarness) -> list[Key]:
    """Blocks in both tiers, on their way to a shared store whose answer never comes."""
    keys = admin.put(admin.tokens(1))
    while not admin.store.orders.touching("remote"):
        assert admin.executor.step()
        admin.store.poll()
    admin.executor.hold()
    return keys


def test_a_tenants_names_leave_the_shared_store_as_well(tmp_path: Path) -> None:
    """Deleted and listed again; other tenants' names stay."""
    medium = FaultyShared(MemoryShared())
    admin = AdminHarness(tmp_path, shared=medium)
    admin.put(admin.tokens(1), salt="a")
    admin.put(admin.tokens(1))
    admin.settle()
    assert len(medium.inner.values) == 8
    cleared = admin.clear(Scope(salt="a"))
    assert (cleared.verified, cleared.untouched) == (True, ())
    assert cleared.dropped == {"upper": 4, "lower": 4, "remote": 4}
    assert {scan.tier: scan.left for scan in cleared.scans} == {"upper": 0, "lower": 0, "remote": 0}
    mine = SERVED.namespace_of("").hex()
    assert {name.partition("/")[0] for name in medium.inner.values} == {mine}


@pytest.mark.parametrize("scope", [Scope(), Scope(older_than_s=0), Scope(prompt=tuple([1] * 16))])
def test_a_shared_store_is_left_alone_by_what_its_names_do_not_tell(
    tmp_path: Path, scope: Scope
) -> None:
    """It is everybody's; the answer says that it was not touched."""
    medium = FaultyShared(MemoryShared())
    admin = AdminHarness(tmp_path, shared=medium)
    admin.put(admin.tokens(1))
    admin.settle()
    admin.clock.advance(5)
    cleared = admin.clear(scope)
    assert (cleared.verified, cleared.untouched) == (True, ("remote",))
    assert admin.store.counts()["lower"] == 0
    assert len(medium.inner.values) == 4


@pytest.mark.parametrize("fails", [True, False])
def test_a_shared_store_that_keeps_names_is_not_called_clear(tmp_path: Path, fails: bool) -> None:
    """Whether it says that it cannot delete, or says nothing and does not."""
    medium = FaultyShared(MemoryShared())
    admin = AdminHarness(tmp_path, shared=medium)
    admin.put(admin.tokens(1), salt="a")
    admin.settle()
    if fails:
        medium.faults.read_error = medium.faults.write_error = TierFault("no", tier="remote")
    else:
        medium.faults.keep.update(medium.inner.values)
    cleared = admin.clear(Scope(salt="a"))
    assert not cleared.verified
    left = None if fails else 4
    assert [scan.left for scan in cleared.scans if scan.tier == "remote"] == [left]
    assert len(medium.inner.values) == 4


def test_lineage_follows_branches_and_ends_in_cycles() -> None:
    """Every block below the root and no other, whatever the links say."""
    a, b, c, d, e = (Key(bytes([n]) * 32) for n in range(1, 6))
    assert lineage([(b, a), (c, b), (d, b), (e, a)], b) == {b, c, d}
    assert lineage([(b, a), (a, b)], a) == {a, b}
    assert lineage([], a) == {a}


# Times to live.


def test_a_block_past_its_time_is_not_found_and_its_slot_is_free(admin: AdminHarness) -> None:
    """To the second, in every tier and on the device; other tenants' stay."""
    theirs = admin.put(admin.tokens(1), salt="a")
    ours = admin.put(admin.tokens(1))
    device = admin.compute(admin.tokens(1), salt="a")
    admin.settle()
    admin.admin.set_ttl(60, tenant=None, salt="a")
    admin.settle()
    admin.clock.advance(59)
    admin.settle()
    assert found(admin, theirs) == 4
    admin.clock.advance(1)
    admin.store.poll()
    admin.admin.poll()  # before any I/O has run
    assert (found(admin, theirs), found(admin, ours)) == (0, 4)
    assert admin.device.state.prefix(device) == []
    admin.settle()
    assert admin.on_medium() == 8
    assert admin.store.levels()[0].state.free_count() == 60


def test_blocks_that_come_later_age_as_well(admin: AdminHarness) -> None:
    """A time to live that is set once goes on counting."""
    admin.admin.set_ttl(10, tenant=None, salt=None)
    for first in range(5):
        keys = admin.put(admin.tokens(first))
        admin.settle()
        for _ in range(9):
            admin.clock.advance(1)
            admin.settle()
        assert found(admin, keys) == 4
        admin.clock.advance(1)
        admin.settle()
        assert found(admin, keys) == 0


def test_every_copy_of_a_block_is_as_old_as_the_first(admin: AdminHarness) -> None:
    """The lower tier was written later by what the upper one had waited: a block lived on there
    after its time, and a copy that was brought up began to live anew."""
    keys = admin.put(admin.tokens(1))
    admin.settle_upper()
    admin.clock.advance(20)
    admin.settle()
    upper, lower = admin.store.levels()
    assert lower.state.published_count() == 4
    born_s = {admin.store.created_s(key) for key in keys}
    assert ages(lower) == ages(upper) == born_s
    admin.store.discard(upper, upper.state.published_slots())
    admin.clock.advance(20)
    admin.settle()
    admin.admin.prefetch(admin.tokens(1), "")
    admin.settle()
    assert upper.state.published_count() == 4
    assert ages(upper) == born_s
    admin.admin.set_ttl(60, tenant=None, salt=None)
    admin.clock.advance(19)
    admin.settle()
    assert found(admin, keys) == 4
    admin.clock.advance(1)
    admin.settle()
    assert found(admin, keys) == 0
    assert admin.on_medium() == 0


def test_a_copy_from_the_shared_store_begins_to_age_here(tmp_path: Path) -> None:
    """Its value tells no age."""
    medium = FaultyShared(MemoryShared())
    other = AdminHarness(tmp_path, shared=medium)
    other.put(other.tokens(1))
    other.settle()
    admin = AdminHarness(tmp_path, shared=medium)
    admin.clock.advance(50)
    admin.admin.prefetch(admin.tokens(1), "")
    admin.settle()
    assert ages(admin.store.levels()[0]) == {admin.wall_s()}


def ages(level: Level) -> set[int]:
    """When the published blocks of a level say that they were first stored."""
    slots = level.state.published_slots()
    return set(level.sealed.seals.created_s[slots].tolist())


def test_a_tenants_own_time_goes_before_everybodys(admin: AdminHarness) -> None:
    """Longer or shorter; removed, the general one counts again."""
    theirs = admin.put(admin.tokens(1), salt="a")
    ours = admin.put(admin.tokens(1))
    admin.settle()
    admin.admin.set_ttl(10, tenant=None, salt=None)
    admin.admin.set_ttl(1000, tenant=tenant_id("a"), salt=None)
    assert admin.admin.ttls() == [
        Ttl(tenant=None, seconds=10),
        Ttl(tenant=tenant_id("a"), seconds=1000),
    ]
    admin.clock.advance(20)
    admin.settle()
    assert (found(admin, theirs), found(admin, ours)) == (4, 0)
    admin.admin.set_ttl(None, tenant=None, salt="a")
    admin.settle()
    assert found(admin, theirs) == 0


def test_times_to_live_survive_a_restart(admin: AdminHarness) -> None:
    """What ran out while the engine was down is not served afterwards."""
    theirs = admin.put(admin.tokens(1), salt="a")
    ours = admin.put(admin.tokens(1))
    admin.settle()
    admin.admin.set_ttl(60, tenant=None, salt="a")
    admin.settle()
    admin.restart()
    assert admin.admin.ttls() == [Ttl(tenant=tenant_id("a"), seconds=60)]
    assert found(admin, theirs) == 4
    admin.clock.advance(61)
    admin.open()
    assert (found(admin, theirs), found(admin, ours)) == (0, 4)


# Weights.


def test_blocks_of_other_weights_are_unreachable_and_the_first_to_go(tmp_path: Path) -> None:
    """Another generation: not found, listed as not current, and evicted before anything else,
    though they are younger."""
    admin = AdminHarness(tmp_path, upper=0, lower=16)
    live = admin.put(admin.tokens(1, 4))
    admin.settle()
    admin.served = NEW_WEIGHTS
    admin.restart()
    assert found(admin, admin.served.keys(admin.tokens(1, 4), "")) == 0
    assert {line.current for line in admin.admin.holdings(Scope())} == {False}
    admin.clock.advance(10)
    admin.put(admin.tokens(2, 4))
    admin.put(admin.tokens(3, 4), salt="a")
    admin.settle()
    admin.served = SERVED
    admin.restart()
    admin.put(admin.tokens(4, 12))
    admin.settle()
    assert found(admin, live) == 4, "twelve slots were wanted, eight held other weights' blocks"
    lines = admin.admin.holdings(Scope())
    assert [(line.current, line.blocks) for line in lines] == [(True, 16)]


def test_of_the_blocks_that_are_served_the_oldest_goes_first(tmp_path: Path) -> None:
    """Letting other weights' blocks go first leaves the order of the others as it was."""
    admin = AdminHarness(tmp_path, upper=0, lower=16)
    prompts = [admin.tokens(first, 4) for first in (1, 2)]
    for prompt in prompts:
        admin.put(prompt)
        admin.settle()
        admin.clock.advance(10)
    admin.served = NEW_WEIGHTS
    admin.restart()
    admin.put(admin.tokens(3, 1))
    admin.settle()
    admin.served = SERVED
    admin.restart()
    admin.put(admin.tokens(4, 11))
    admin.settle()
    held = [found(admin, SERVED.keys(prompt, "")) for prompt in prompts]
    assert held == [1, 4], "of the older prompt, the tail"


def test_old_weights_that_come_back_find_their_blocks(tmp_path: Path) -> None:
    """Reclaimed lazily: until their place was needed, nothing was lost."""
    admin = AdminHarness(tmp_path)
    keys = admin.put(admin.tokens(1))
    admin.settle()
    admin.served = NEW_WEIGHTS
    admin.restart()
    admin.served = SERVED
    admin.restart()
    assert found(admin, keys) == 4
    assert [line.current for line in admin.admin.holdings(Scope())] == [True, True]


def test_a_namespace_that_nobody_wrote_down_is_unknown_not_old(admin: AdminHarness) -> None:
    """After a crash: its blocks are served as soon as the tenant asks, and then have a name."""
    keys = admin.put(admin.tokens(1), salt="a", known=False)
    admin.settle()
    assert {line.tenant for line in admin.admin.holdings(Scope())} == {UNKNOWN}
    assert found(admin, keys) == 4
    admin.admin.meet(admin.served.namespace_of("a"), "a")
    assert {line.tenant for line in admin.admin.holdings(Scope())} == {tenant_id("a")}


# Prefetching.


def test_a_prefetch_brings_a_prompt_up(admin: AdminHarness) -> None:
    """From the lower into the upper tier, verified, with its progress told."""
    keys = admin.put(admin.tokens(1, 6))
    admin.settle()
    upper = admin.store.levels()[0]
    admin.store.discard(upper, [upper.state.slot_of(key) for key in keys[2:]])
    admin.settle()
    first = admin.admin.prefetch(admin.tokens(1, 6), "")
    assert first.state is PrefetchState.RUNNING
    assert (first.blocks, first.present, first.done) == (6, 2, 0)
    admin.settle()
    assert admin.admin.prefetches() == [
        Prefetched(id=first.id, state=PrefetchState.DONE, blocks=6, present=2, done=4)
    ]
    outcomes, buffers = admin.read(keys)
    assert outcomes == [Hit("upper")] * 6
    assert [bytes(b) for b in buffers] == [bytes(truth(key)) for key in keys]


def test_a_prefetch_reaches_into_the_shared_store(tmp_path: Path) -> None:
    """What another node has computed is asked for, and brought up."""
    medium = FaultyShared(MemoryShared())
    other = AdminHarness(tmp_path, shared=medium)
    keys = other.put(other.tokens(1, 6))
    other.settle()
    admin = AdminHarness(tmp_path, shared=medium)
    begun = admin.admin.prefetch(admin.tokens(1, 6), "")
    assert (begun.state, begun.blocks) == (PrefetchState.RUNNING, 0), "the store is being asked"
    admin.settle()
    (after,) = admin.admin.prefetches()
    assert (after.state, after.blocks, after.done) == (PrefetchState.DONE, 6, 6)
    outcomes, buffers = admin.read(keys)
    assert outcomes == [Hit("upper")] * 6
    assert [bytes(b) for b in buffers] == [bytes(truth(key)) for key in keys]


def test_a_prefetch_stops_at_a_bad_block(admin: AdminHarness) -> None:
    """What lies before it is up; what lies behind it would be useless."""
    keys = admin.put(admin.tokens(1, 6))
    admin.settle()
    upper = admin.store.levels()[0]
    admin.store.discard(upper, upper.state.published_slots())
    admin.settle()
    admin.lower.flip_at_rest(admin.slot("lower", keys[3]), size_bytes=SIZE, at=9)
    admin.admin.prefetch(admin.tokens(1, 6), "")
    admin.settle()
    (after,) = admin.admin.prefetches()
    assert (after.state, after.done) == (PrefetchState.STOPPED, 3)
    assert len(upper.state.prefix(keys)) == 3


def test_a_prefetch_never_pushes_out_its_own_head(tmp_path: Path) -> None:
    """A prompt larger than the upper tier fills it and stops."""
    admin = AdminHarness(tmp_path, upper=4, lower=64)
    for blocks in (4, 8, 10):
        keys = admin.put(admin.tokens(1, blocks))
        admin.settle()
    assert admin.store.counts() == {"upper": 4, "lower": 10}
    upper = admin.store.levels()[0]
    admin.store.discard(upper, upper.state.published_slots())
    admin.settle()
    admin.admin.prefetch(admin.tokens(1, 10), "")
    admin.settle()
    (after,) = admin.admin.prefetches()
    assert (after.state, after.done) == (PrefetchState.STOPPED, 4)
    assert len(upper.state.prefix(keys)) == 4


def test_a_prefetch_keeps_what_is_up_already(tmp_path: Path) -> None:
    """The head of the prompt was the next to go: it counts as used now."""
    admin = AdminHarness(tmp_path, upper=4, lower=64)
    keys = admin.put(admin.tokens(1, 4))
    admin.settle()
    upper = admin.store.levels()[0]
    admin.store.discard(upper, [admin.slot("upper", key) for key in keys[2:]])
    admin.settle()
    admin.put(admin.tokens(2, 2))
    admin.settle()
    admin.admin.prefetch(admin.tokens(1, 4), "")
    admin.settle()
    assert len(upper.state.prefix(keys)) == 4


def test_a_prompt_that_nobody_holds_is_done_at_once(admin: AdminHarness) -> None:
    """Nothing to bring up is no failure."""
    after = admin.admin.prefetch(admin.tokens(9), "")
    assert (after.state, after.blocks) == (PrefetchState.DONE, 0)


def test_prefetches_are_bounded(admin: AdminHarness) -> None:
    """Each holds memory: a fifth at a time is told to come back."""
    for first in range(5):
        admin.put(admin.tokens(first))
    admin.settle()
    upper = admin.store.levels()[0]
    admin.store.discard(upper, upper.state.published_slots())
    for first in range(4):
        admin.admin.prefetch(admin.tokens(first), "")
    with pytest.raises(RequestError, match="running"):
        admin.admin.prefetch(admin.tokens(4), "")
    admin.settle()
    assert admin.admin.prefetch(admin.tokens(4), "").state is PrefetchState.RUNNING
