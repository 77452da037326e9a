"""Administration of quarantine: who sees it, and what ends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_harness import SERVED, AdminHarness

from pagoda.core.errors import RequestError
from pagoda.core.holdings import SHARED, Scope, tenant_id
from pagoda.core.identity import Key, NamespaceId
from pagoda.store.quarantine import Entry
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared

MINE = SERVED.namespace_of("")
OTHERS = SERVED.namespace_of("alice")


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminHarness]:
    """64 blocks in each tier, 16 on the device."""
    harness = AdminHarness(tmp_path)
    yield harness
    harness.settle()
    assert harness.admin.idle
    harness.store.check_invariants()


def bar(harness: AdminHarness, *namespaces: NamespaceId) -> None:
    """Put namespaces in quarantine, as a check does."""
    for at, namespace in enumerate(namespaces):
        harness.store.quarantine.add(namespace, Entry(at, "because"))


def both(harness: AdminHarness) -> tuple[list[Key], list[Key]]:
    """Blocks of two tenants, both of whose namespaces are in quarantine."""
    mine = harness.put(harness.tokens(1))
    others = harness.put(harness.tokens(1), salt="alice")
    harness.settle()
    bar(harness, MINE, OTHERS)
    return mine, others


def test_what_is_in_quarantine_is_listed_and_lifted(admin: AdminHarness) -> None:
    """With whose it is; by how its name begins. What is lifted is found again."""
    mine, others = both(admin)
    shown = admin.admin.quarantined()
    assert [(one.namespace, one.tenant) for one in shown] == [
        (MINE.hex(), SHARED),
        (OTHERS.hex(), tenant_id("alice")),
    ]
    for beginning in ("", "zz"):
        with pytest.raises(RequestError):
            admin.admin.lift(beginning)
    assert admin.admin.lookup(admin.tokens(1), "").resident_tokens == 0
    assert admin.admin.lift(MINE.hex()[:9].upper()) == shown[0]
    assert admin.admin.quarantined() == shown[1:]
    assert admin.store.match(mine) == len(mine)
    assert admin.store.match(others) == 0
    assert admin.admin.lookup(admin.tokens(1), "").resident_tokens > 0


def test_clearing_a_whole_namespace_ends_its_quarantine_and_no_others(
    admin: AdminHarness,
) -> None:
    """Part of it, or part of its time, does not; once it is cleared, what is computed anew is
    stored and found again."""
    mine, others = both(admin)
    admin.clear(Scope(prompt=tuple(admin.tokens(1)), salt=""))
    admin.clear(Scope(namespace=MINE.hex(), older_than_s=0.0))
    assert len(admin.admin.quarantined()) == 2
    assert admin.clear(Scope(namespace=MINE.hex())).verified
    assert [one.namespace for one in admin.admin.quarantined()] == [OTHERS.hex()]
    admin.put(admin.tokens(1))
    admin.settle()
    assert admin.store.match(mine) == len(mine)
    assert admin.store.match(others) == 0


def test_clearing_everything_ends_every_quarantine(admin: AdminHarness) -> None:
    """There is nothing left that could be wrong."""
    both(admin)
    assert admin.clear(Scope()).verified
    assert admin.admin.quarantined() == []


def test_what_a_shared_store_may_still_have_stays_in_quarantine(tmp_path: Path) -> None:
    """Clearing everything leaves it alone; clearing the namespace does not."""
    harness = AdminHarness(tmp_path, shared=FaultyShared(MemoryShared()))
    both(harness)
    harness.clear(Scope())
    assert len(harness.admin.quarantined()) == 2
    assert harness.clear(Scope(namespace=MINE.hex())).verified
    assert [one.namespace for one in harness.admin.quarantined()] == [OTHERS.hex()]


def test_a_prefetch_brings_up_nothing_of_it(admin: AdminHarness) -> None:
    """It ends with nothing to do."""
    both(admin)
    begun = admin.admin.prefetch(admin.tokens(1), "")
    admin.settle()
    [ended] = [one for one in admin.admin.prefetches() if one.id == begun.id]
    assert (ended.blocks, ended.done) == (0, 0)
