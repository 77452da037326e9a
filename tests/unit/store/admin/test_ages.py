"""Times to live, and blocks of other weights."""

from __future__ import annotations

from pathlib import Path

from admin_harness import NEW_WEIGHTS, SERVED, AdminHarness

from pagoda.core.holdings import (
    UNKNOWN,
    Scope,
    Ttl,
    tenant_id,
)
from pagoda.store.level import Level
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared

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
    assert admin.found(theirs) == 4
    admin.clock.advance(1)
    admin.store.poll()
    admin.admin.poll()  # before any I/O has run
    assert (admin.found(theirs), admin.found(ours)) == (0, 4)
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
        assert admin.found(keys) == 4
        admin.clock.advance(1)
        admin.settle()
        assert admin.found(keys) == 0


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
    assert admin.found(keys) == 4
    admin.clock.advance(1)
    admin.settle()
    assert admin.found(keys) == 0
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
    assert (admin.found(theirs), admin.found(ours)) == (4, 0)
    admin.admin.set_ttl(None, tenant=None, salt="a")
    admin.settle()
    assert admin.found(theirs) == 0


def test_times_to_live_survive_a_restart(admin: AdminHarness) -> None:
    """What ran out while the engine was down is not served afterwards."""
    theirs = admin.put(admin.tokens(1), salt="a")
    ours = admin.put(admin.tokens(1))
    admin.settle()
    admin.admin.set_ttl(60, tenant=None, salt="a")
    admin.settle()
    admin.restart()
    assert admin.admin.ttls() == [Ttl(tenant=tenant_id("a"), seconds=60)]
    assert admin.found(theirs) == 4
    admin.clock.advance(61)
    admin.open()
    assert (admin.found(theirs), admin.found(ours)) == (0, 4)


# Weights.


def test_blocks_of_other_weights_are_unreachable_and_the_first_to_go(tmp_path: Path) -> None:
    """Another generation: not found, listed as not current, and evicted before anything else,
    though they are younger."""
    admin = AdminHarness(tmp_path, upper=0, lower=16)
    live = admin.put(admin.tokens(1, 4))
    admin.settle()
    admin.served = NEW_WEIGHTS
    admin.restart()
    assert admin.found(admin.served.keys(admin.tokens(1, 4), "")) == 0
    assert {line.current for line in admin.admin.holdings(Scope())} == {False}
    admin.clock.advance(10)
    admin.put(admin.tokens(2, 4))
    admin.put(admin.tokens(3, 4), salt="a")
    admin.settle()
    admin.served = SERVED
    admin.restart()
    admin.put(admin.tokens(4, 12))
    admin.settle()
    assert admin.found(live) == 4, "twelve slots were wanted, eight held other weights' blocks"
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
    held = [admin.found(SERVED.keys(prompt, "")) for prompt in prompts]
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
    assert admin.found(keys) == 4
    assert [line.current for line in admin.admin.holdings(Scope())] == [True, True]


def test_a_namespace_that_nobody_wrote_down_is_unknown_not_old(admin: AdminHarness) -> None:
    """After a crash: its blocks are served as soon as the tenant asks, and then have a name."""
    keys = admin.put(admin.tokens(1), salt="a", known=False)
    admin.settle()
    assert {line.tenant for line in admin.admin.holdings(Scope())} == {UNKNOWN}
    assert admin.found(keys) == 4
    admin.admin.meet(admin.served.namespace_of("a"), "a")
    assert {line.tenant for line in admin.admin.holdings(Scope())} == {tenant_id("a")}
