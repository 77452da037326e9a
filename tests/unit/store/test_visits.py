"""Requests as a store's tiers know them: from their beginning until their blocks have arrived."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pool_harness import Pool
from store_harness import Harness, blocks_of, keys_of

from pagoda.core.events import Reason, Skipped
from pagoda.core.identity import ROOT, Key
from pagoda.core.policy import DEFAULT, REGISTRY, Ending, Lru, Request


def held(harness: Harness, tier: int) -> int:
    """How many leases a level has."""
    return harness.store.levels()[tier].state.lease_count()


def has(harness: Harness, tier: int, keys: list[Key]) -> list[bool]:
    """Which blocks a level holds."""
    state = harness.store.levels()[tier].state
    return [state.slot_of(key) is not None for key in keys]


def end(harness: Harness, request: Request, keys: list[Key]) -> None:
    """A request ends with this chain, of which nothing is offered again."""
    ending = Ending(keys=keys, at_s=harness.clock(), output_tokens=0)
    harness.store.ended(request, ending, [], lambda block: None)


def pass_by(harness: Harness, keys: list[Key]) -> None:
    """A request comes, stores its blocks, and ends."""
    begun = harness.begin(keys)
    harness.store.save(blocks_of(keys), lambda block: None, begun)
    harness.settle()
    end(harness, begun, keys)


def test_what_a_request_has_is_leased_until_it_is_over() -> None:
    """In every tier: what was there when it came, and what it brings."""
    harness = Harness()
    keys = keys_of(6)
    harness.save_all(keys[:2])
    begun = harness.begin(keys)
    assert (held(harness, 0), held(harness, 1)) == (2, 2)
    harness.store.save(blocks_of(keys)[2:], lambda block: None, begun)
    harness.settle()
    assert (held(harness, 0), held(harness, 1)) == (6, 6)
    harness.store.check_invariants()
    end(harness, begun, keys)
    assert (held(harness, 0), held(harness, 1)) == (0, 0)
    harness.store.check_invariants()


def test_what_a_request_had_is_free_again_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """In that in which it came to have it: which slot is used next is no matter of addresses."""
    harness = Harness()
    keys = keys_of(12)
    harness.save_all(keys[:6])
    begun = harness.begin(keys)
    harness.store.save(blocks_of(keys)[6:], lambda block: None, begun)
    harness.settle()
    state = harness.store.levels()[0].state
    released: list[int] = []
    release = state.release

    def noted(slots: Sequence[int]) -> None:
        released.extend(slots)
        release(slots)

    monkeypatch.setattr(state, "release", noted)
    expected = [state.slot_of(key) for key in keys]
    end(harness, begun, keys)
    assert released == expected


def test_another_requests_blocks_make_room_first() -> None:
    """The chain of a running request stays whole, and what does not fit beside it is skipped;
    when it is over, it makes room like any other."""
    harness = Harness(upper=4, lower=0)
    mine = keys_of(3)
    begun = harness.begin(mine)
    harness.store.save(blocks_of(mine), lambda block: None, begun)
    harness.settle()
    for salt in range(1, 6):
        pass_by(harness, keys_of(2, salt=salt))
        assert has(harness, 0, mine) == [True] * 3
    full = [event for event in harness.told(Skipped) if event.reason is Reason.FULL]
    assert len(full) == 5
    end(harness, begun, mine)
    for salt in range(6, 12):
        pass_by(harness, keys_of(2, salt=salt))
    assert has(harness, 0, mine) != [True] * 3


def test_a_tier_hears_of_the_end_when_the_blocks_have_come() -> None:
    """Not before: whose they are, a policy can only tell while the request is open."""
    harness = Harness()
    upper, lower = (level.residency for level in harness.store.levels())
    keys = keys_of(3)
    begun = harness.begin(keys)
    harness.end(keys, request=begun)
    assert (upper.open_requests, lower.open_requests) == (1, 1)
    assert not harness.store.idle
    while not all(has(harness, 0, keys)):
        assert harness.executor.step()
        harness.store.poll()
    assert (upper.open_requests, lower.open_requests) == (0, 1)
    harness.settle()
    assert has(harness, 1, keys) == [True] * 3
    assert lower.open_requests == harness.store.open_requests == 0


def test_a_tier_that_hangs_is_told_all_the_same() -> None:
    """Once its blocks are given up; requests do not gather behind a stuck drive."""
    pool = Pool(drives=1, upper=8)
    pool.hang("drive0")
    keys = keys_of(2)
    begun = pool.begin(keys)
    pool.end(keys, request=begun)
    pool.settle()
    memory, drive = (level.residency for level in pool.store.levels())
    assert (memory.open_requests, drive.open_requests) == (0, 1)
    pool.pass_time(31.0)
    assert drive.open_requests == pool.store.open_requests == 0
    pool.unhang()
    pool.settle()
    pool.store.check_invariants()


def test_clearing_takes_the_blocks_of_running_requests_as_well() -> None:
    """They are not found any more; their slots are free once the request is over."""
    harness = Harness()
    keys = keys_of(4)
    begun = harness.begin(keys)
    harness.store.save(blocks_of(keys), lambda block: None, begun)
    harness.settle()
    harness.store.clear()
    harness.settle()
    assert has(harness, 0, keys) == [False] * 4
    end(harness, begun, keys)
    for level in harness.store.levels():
        assert level.state.free_count() == level.state.slots
    harness.store.check_invariants()


@pytest.mark.parametrize("drives", [1, 3])
def test_a_chain_that_is_spread_over_drives_is_held(drives: int) -> None:
    """Each drive holds what it has of it, wherever the other blocks are."""
    pool = Pool(drives=drives, upper=0)
    pool.run_of(1)
    keys = keys_of(6)
    pool.save_all(keys)
    begun = pool.begin(keys)
    assert sum(level.state.lease_count() for level in pool.store.levels()) == 6
    end(pool, begun, keys)
    pool.store.check_invariants()


def test_what_never_began_does_not_end() -> None:
    """Neither does it begin or end twice."""
    harness = Harness()
    keys = keys_of(1)
    with pytest.raises(KeyError):
        end(harness, Request(keys=keys, at_s=0.0, tokens=16), keys)
    begun = harness.begin(keys)
    with pytest.raises(AssertionError, match="twice"):
        harness.store.begin(begun)
    harness.end(keys, request=begun)
    with pytest.raises(AssertionError, match="twice"):
        end(harness, begun, keys)


class Fitting(Lru):
    """Least recently used, and admits what goes on from blocks that are here, as long as there is
    a free slot."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.here = {ROOT}

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], free: int) -> Sequence[int]:
        """The first few."""
        return range(min(free, len(keys)) if parents[0] in self.here else 0)

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        """They are here; for this test, for ever."""
        self.here.update(keys)
        super().insert(slots, keys, parents)


@pytest.mark.parametrize("first", range(1, 6))
def test_blocks_behind_waiting_ones_are_judged_with_them(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """A block whose parent is still on its way is no stray: it is let in or refused as if both
    had come at once, whatever has a slot already."""
    monkeypatch.setitem(REGISTRY, DEFAULT, Fitting)
    harness = Harness(upper=4, lower=0)
    harness.store.levels()[0].run_blocks = 2  # so that some have a slot, and others wait
    keys = keys_of(6)
    begun = harness.begin(keys)
    harness.store.save(blocks_of(keys)[:first], lambda block: None, begun)
    harness.store.save(blocks_of(keys)[first:], lambda block: None, begun)
    harness.settle()
    assert has(harness, 0, keys) == [True] * 4 + [False] * 2


def test_chains_are_judged_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two chains in one batch, each goes as far as there is room for both."""
    monkeypatch.setitem(REGISTRY, DEFAULT, Fitting)
    harness = Harness(upper=5, lower=0)
    one, two = keys_of(3), keys_of(3, salt=1)
    harness.store.save(blocks_of(one) + blocks_of(two), lambda block: None)
    harness.settle()
    assert has(harness, 0, one + two) == [True] * 5 + [False]
