"""The ledger of promises: what is owed after a crash, what is allowed, what may be refused."""

from __future__ import annotations

import pytest

from pagoda.core.identity import Key
from pagoda.lab.crash.ledger import Act, Event, Ledger, Placed

ANY = Key(b"a" * 32)
OTHER = Key(b"b" * 32)


def commit(slot: int, key: Key, version: int, *, begun: int, ended: int) -> list[Event]:
    """A slot given to a block: overwritten, then committed."""
    block = (Placed(slot, key, version),)
    return [
        Event(Act.OVERWRITE, begun, (slot,)),
        Event(Act.COMMIT, begun + 2, (slot,), block),
        Event(Act.COMMITTED, ended, (slot,), block),
    ]


STORED = commit(0, ANY, 1, begun=0, ended=4)  # erase, payload, sync, header: operations 0 to 3


@pytest.mark.parametrize(
    ("cut", "synced", "owed"),
    [(4, 2, None), (5, 4, 1), (4, 4, 1), (3, 2, None)],
    ids=["header not synced", "synced since", "synced right after", "commit not ended"],
)
def test_a_block_is_owed_once_its_header_was_synced(cut: int, synced: int, owed: int) -> None:
    """A commit that returned promises nothing against a power cut before the next sync."""
    assert Ledger(STORED, cut=cut, synced=synced).owed(ANY) == owed
    assert Ledger(STORED, cut=cut, synced=synced).owed(OTHER) is None


def test_what_was_on_its_way_may_come_back_and_is_not_owed() -> None:
    """A header that was written before its commit returned may have reached the medium."""
    ledger = Ledger(STORED, cut=3, synced=2)
    assert ledger.allowed(ANY) == {1}
    assert Ledger(STORED, cut=2, synced=-1).allowed(ANY) == set(), "its commit had not begun"


def test_a_slot_that_is_overwritten_owes_nothing_and_may_be_refused() -> None:
    """Its old header may be back beside newer bytes; not where only the process died."""
    events = [*STORED, *commit(0, OTHER, 2, begun=5, ended=9)]
    assert Ledger(events, cut=5, synced=4).owed(ANY) == 1, "not an operation of it was issued"
    assert not Ledger(events, cut=5, synced=4).refusable(ANY)
    during = Ledger(events, cut=7, synced=4)
    assert during.owed(ANY) is None
    assert during.allowed(ANY) == {1}
    assert during.refusable(ANY)
    assert not during.refusable(OTHER)
    assert not Ledger(events, cut=7, synced=7, in_order=True).refusable(ANY)


def test_a_slot_s_old_block_is_gone_once_a_newer_one_was_committed() -> None:
    """The sync of the new payload made the old header's zeros durable."""
    events = [*STORED, *commit(0, OTHER, 2, begun=5, ended=9)]
    after = Ledger(events, cut=9, synced=7)
    assert after.allowed(ANY) == set()
    assert not after.refusable(ANY)
    assert after.owed(OTHER) is None
    assert Ledger(events, cut=10, synced=9).owed(OTHER) == 2


def test_of_a_block_stored_twice_only_the_last_is_owed() -> None:
    """The first had been evicted, though its header may still be there."""
    events = [*STORED, *commit(1, ANY, 2, begun=5, ended=9)]
    assert Ledger(events, cut=10, synced=9).owed(ANY) == 2
    assert Ledger(events, cut=10, synced=9).allowed(ANY) == {1, 2}
    assert Ledger(events, cut=8, synced=7).owed(ANY) is None


@pytest.mark.parametrize("end", [Event(Act.ERASED, 7, (0,)), Event(Act.CLEARED, 7)])
def test_an_erased_block_may_not_come_back(end: Event) -> None:
    """Erasing is done when it returns: before, the block may be there or not."""
    events = [*STORED, Event(Act.OVERWRITE, 5, (0,)), end]
    assert Ledger(events, cut=6, synced=4).allowed(ANY) == {1}
    assert Ledger(events, cut=6, synced=4).owed(ANY) is None
    assert Ledger(events, cut=7, synced=6).allowed(ANY) == set()
