"""The sampled check in a store over two tiers and a shared one, stepped by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_harness import NAMESPACE, SIZE, Harness, blocks_of, check_plan, keys_of, truth

from pagoda.core.checking import Verdict
from pagoda.core.errors import TierFault
from pagoda.core.events import Barred, Checked, Reason, Skipped
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.outcome import Hit, Miss
from pagoda.store.block import Block
from pagoda.testing.clock import FakeClock
from pagoda.testing.memory_shared import MemoryShared

Make = Callable[..., Harness]


@pytest.fixture
def harness_of() -> Iterator[Make]:
    """Makes stores that check; each has to add up at the end."""
    made: list[Harness] = []

    def make(**more: object) -> Harness:
        made.append(Harness(**{"check": check_plan()} | more))
        return made[-1]

    yield make
    for one in made:
        one.settle()
        assert one.store.idle
        one.store.check_invariants()


def poison(harness: Harness, keys: Sequence[Key], wrong: Sequence[int]) -> None:
    """Store a chain of which some blocks are another's: sound, sealed, and under a wrong name."""
    blocks = [
        replace(block, payload=truth(Key(bytes(reversed(block.key))))) if at in wrong else block
        for at, block in enumerate(blocks_of(keys))
    ]
    harness.store.save(blocks, lambda block: None)
    harness.settle()


def compare(harness: Harness, keys: Sequence[Key]) -> list[Key]:
    """An engine computes a chain anew; which blocks' bytes are free afterwards."""
    released: list[Key] = []
    harness.store.checks.compare(blocks_of(keys), lambda block: released.append(block.key))
    harness.settle()
    return released


def verdicts(harness: Harness) -> list[tuple[str, Verdict]]:
    """What was found, by tier."""
    return [(one.tier, one.verdict) for one in harness.told(Checked) if isinstance(one, Checked)]


def test_blocks_that_are_right_are_equal_in_every_tier(harness_of: Make) -> None:
    """Each copy is read back and compared, each block given back once, and all is as it was."""
    harness, keys = harness_of(), keys_of(5)
    harness.save_all(keys)
    assert sorted(compare(harness, keys)) == sorted(keys)
    assert sorted(verdicts(harness)) == sorted(
        [(tier, Verdict.EQUAL) for tier in ("lower", "upper")] * 5
    )
    assert harness.store.quarantine.count == 0
    assert harness.store.match(keys) == 5


@settings(max_examples=40, deadline=None)
@given(wrong=st.sets(st.integers(0, 7)), seed=st.integers(0, 99))
def test_a_namespace_is_in_quarantine_exactly_when_a_block_was_wrong(
    wrong: set[int], seed: int
) -> None:
    """Whichever blocks they are: then none of it is found in any tier, else all of it is."""
    harness, keys = Harness(check=check_plan(), seed=seed), keys_of(8)
    poison(harness, keys, sorted(wrong))
    compare(harness, keys)
    told = verdicts(harness)
    assert sum(verdict is Verdict.WRONG for _, verdict in told) == 2 * len(wrong)
    assert sum(verdict is Verdict.EQUAL for _, verdict in told) == 2 * (8 - len(wrong))
    assert harness.store.quarantine.bars(NAMESPACE) == bool(wrong)
    assert len(harness.told(Barred)) == bool(wrong)
    assert harness.store.match(keys) == (0 if wrong else 8)
    harness.store.check_invariants()


def test_nothing_of_a_namespace_in_quarantine_is_handed_out_or_stored(harness_of: Make) -> None:
    """Neither its sound blocks nor new ones; another namespace is served as before; lifted, its
    blocks are there again."""
    harness, keys, other = harness_of(), keys_of(4), keys_of(3, salt=9)
    poison(harness, keys, [2])
    mine = [replace(block, namespace=NamespaceId(b"o" * 32)) for block in blocks_of(other)]
    harness.store.save(mine, lambda block: None)
    harness.settle()
    compare(harness, keys)
    outcomes, _ = harness.read(keys)
    assert outcomes[0] == Miss(Reason.QUARANTINED)
    assert not any(isinstance(outcome, Hit) for outcome in outcomes)
    harness.save_all(keys_of(2, salt=5))
    assert harness.store.match(keys_of(2, salt=5)) == 0
    assert {e.reason for e in harness.told(Skipped) if isinstance(e, Skipped)} == {
        Reason.QUARANTINED
    }
    assert harness.released[keys_of(2, salt=5)[0]] == 1
    assert harness.store.match(other) == 3
    assert harness.store.quarantine.lift(NAMESPACE)
    assert harness.store.match(keys) == 4


def test_the_rate_says_how_many_requests_are_told_less(harness_of: Make) -> None:
    """Of those the last blocks are kept back, as many as the plan says; nothing else is."""
    harness = harness_of(check=check_plan(rate=0.25, most_blocks=3))
    allowed = [harness.store.checks.allow(10) for _ in range(2000)]
    assert set(allowed) == {7, 10}
    assert 350 < allowed.count(7) < 650
    always = harness_of(check=check_plan(most_blocks=3))
    assert [always.store.checks.allow(found) for found in (0, 1, 3, 4)] == [0, 0, 0, 1]
    never = harness_of(check=None)
    assert not never.store.checks.active
    assert never.store.checks.allow(10) == 10


def test_a_copy_that_hangs_holds_blocks_no_longer_than_its_deadline(harness_of: Make) -> None:
    """The engine has its memory back in time, and what it then writes there accuses nobody."""
    harness, keys = harness_of(), keys_of(3)
    harness.save_all(keys)
    blocks = blocks_of(keys)

    def reuse(block: Block) -> None:
        block.payload[:] = b"\x5a" * SIZE

    harness.store.checks.compare(blocks, reuse)
    harness.store.poll()
    assert bytes(blocks[0].payload) == bytes(truth(keys[0])), "still held"
    harness.clock.advance(31)
    harness.store.poll()
    assert {bytes(block.payload) for block in blocks} == {b"\x5a" * SIZE}
    harness.settle()
    assert verdicts(harness) == []
    assert harness.store.quarantine.count == 0


def test_a_copy_that_cannot_be_read_says_nothing(harness_of: Make) -> None:
    """A bad byte or an error of the medium is the seal's to find, and no wrong identity."""
    harness, keys = harness_of(upper=0), keys_of(3)
    harness.save_all(keys)
    harness.lower.faults.flip_on_read = {harness.slot("lower", keys[0])}
    harness.lower.faults.read_error = {harness.slot("lower", keys[1]): TierFault("no", tier="l")}
    assert sorted(compare(harness, keys)) == sorted(keys)
    found = [verdict for _, verdict in verdicts(harness)]
    assert sorted(found) == [Verdict.EQUAL, Verdict.UNREAD, Verdict.UNREAD]
    assert harness.store.quarantine.count == 0


def test_a_block_that_nobody_has_is_given_back_at_once(harness_of: Make) -> None:
    """It was evicted since it was found."""
    harness, keys = harness_of(), keys_of(2)
    released: list[Key] = []
    harness.store.checks.compare(blocks_of(keys), lambda block: released.append(block.key))
    assert released == keys
    assert verdicts(harness) == []


def test_only_so_much_waits_to_be_compared(harness_of: Make) -> None:
    """Beyond that blocks are given back and not compared: tiers may be stuck."""
    harness, keys = harness_of(queue_bytes=4 * SIZE), keys_of(12)
    for first in range(0, 12, 3):
        harness.save_all(keys[first : first + 3])
    released: list[Key] = []
    for key in keys:
        harness.store.checks.compare(
            [block for block in blocks_of(keys) if block.key == key],
            lambda block: released.append(block.key),
        )
    assert sorted(released) == sorted(keys[4:])
    harness.settle()
    assert sorted(released) == sorted(keys)
    assert len(verdicts(harness)) == 2 * 4


def test_a_wrong_block_of_another_node_is_found_and_not_passed_on(harness_of: Make) -> None:
    """It lies in the shared store alone. The node that finds it reads and writes nothing of that
    namespace there any more."""
    medium, clock = MemoryShared(), FakeClock()
    liar = harness_of(shared=medium, clock=clock, check=None)
    node = harness_of(shared=medium, clock=clock, upper=0, lower=0, seed=1)
    keys = keys_of(3)
    poison(liar, keys, [1])
    node.store.probe(NAMESPACE, keys)
    node.settle()
    assert node.store.match(keys) == 3
    assert sorted(compare(node, keys)) == sorted(keys)
    assert sorted(verdicts(node)) == [
        ("remote", Verdict.EQUAL),
        ("remote", Verdict.EQUAL),
        ("remote", Verdict.WRONG),
    ]
    assert node.store.match(keys) == 0
    before = dict(medium.values)
    node.save_all(keys_of(2, salt=3))
    assert medium.values == before
    outcomes, _ = node.read(keys)
    assert not any(isinstance(outcome, Hit) for outcome in outcomes)


@pytest.mark.parametrize("seed", range(12))
def test_blocks_on_their_way_to_others_go_no_further(harness_of: Make, seed: int) -> None:
    """Once its namespace is in quarantine, nothing is added to what others may read, whatever was
    queued or under way."""
    medium = MemoryShared()
    harness, keys = harness_of(shared=medium, seed=seed), keys_of(40)
    poison(harness, keys[:1], [0])
    harness.store.save(blocks_of(keys[1:]), lambda block: None)
    harness.store.checks.compare(blocks_of(keys[:1]), lambda block: None)
    while not harness.store.quarantine.bars(NAMESPACE):
        assert harness.executor.step()
        harness.store.poll()
    before = set(medium.values)
    harness.settle()
    assert len(medium.values) < 40
    assert set(medium.values) <= before
