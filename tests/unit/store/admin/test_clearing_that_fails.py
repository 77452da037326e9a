"""Clearing media that fail, hang, or do not tell: the answer comes, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from admin_harness import SERVED, AdminHarness

from pagoda.core.errors import TierFault
from pagoda.core.events import Degraded
from pagoda.core.holdings import (
    Scope,
)
from pagoda.core.identity import Key
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared


def test_a_clearing_that_cannot_erase_says_so(admin: AdminHarness) -> None:
    """A medium that keeps its headers is not called clear."""
    keys = admin.put(admin.tokens(1), salt="a")
    admin.settle()
    admin.lower.faults.erase_error = TierFault("no", tier="lower")
    cleared = admin.clear(Scope(salt="a"))
    assert not cleared.verified
    assert {scan.tier: scan.left for scan in cleared.scans} == {"upper": 0, "lower": 4}
    assert admin.found(keys) == 0, "it cannot be found nevertheless"
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
    assert admin.found(keys) == 0
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
