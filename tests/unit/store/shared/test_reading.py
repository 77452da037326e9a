"""The shared level reads: probes, answers that are remembered, and what goes bad."""

from __future__ import annotations

from collections import Counter

import pytest
from shared_harness import (
    SIZE,
    SPACE,
    Counting,
    Node,
    dirty,
    keys_of,
    name_of,
    truth,
)

from pagoda.core.errors import TierFault
from pagoda.core.events import Degraded, Reason, Refused, Restored, Stored
from pagoda.core.outcome import Corrupt, Hit, Miss, Unavailable
from pagoda.tiers.remote.breaker import State

DOWN = TierFault("down", tier="remote")


DIRTY = bytes(dirty())


def test_what_one_node_shares_another_restores(node, writer):
    """Byte for byte, told as restored and stored."""
    keys = keys_of(6)
    writer.share(keys)
    assert node.find(keys) == 6
    outcomes, buffers = node.read(keys)
    assert outcomes == [Hit("remote")] * 6
    assert list(buffers) == [truth(key) for key in keys]
    assert sum(event.blocks for event in node.told(Restored)) == 6
    assert sum(event.size_bytes for event in writer.told(Stored)) == 6 * SIZE
    assert writer.released == Counter(keys)


def test_nothing_is_asked_before_a_probe(node, writer, tier):
    """Looking up and fetching ask nobody: what is not known to be there is a miss at once."""
    keys = keys_of(3)
    writer.share(keys)
    tier.asked.clear()
    assert node.level.known_prefix(keys) == 0
    restore = node.start(keys)
    assert restore.outcomes == [Miss()] * 3
    assert restore.drained
    assert tier.asked == []


def test_a_probe_asks_in_growing_steps_and_stops_at_the_first_absent_block(node, writer, tier):
    """A long prompt that nobody has shared costs a few questions, not hundreds."""
    keys = keys_of(200)
    writer.share(keys[:20])
    tier.asked.clear()
    assert node.find(keys) == 20
    assert [len(names) for names in tier.asked] == [8, 16]


def test_a_probe_asks_for_a_bounded_number_of_blocks(tier, writer, clock):
    """However long the prompt is."""
    keys = keys_of(50)
    writer.share(keys)
    node = Node(tier, clock=clock, probe_blocks=30)
    tier.asked.clear()
    assert node.find(keys) == 30
    assert sum(map(len, tier.asked)) == 30


def test_answers_are_remembered_for_a_while(node, writer, tier, clock):
    """Presence longer than absence, which another node may end at any moment."""
    keys = keys_of(2)
    writer.share(keys[:1])
    node.find(keys)
    tier.asked.clear()
    assert node.level.probe(SPACE, keys).done
    assert tier.asked == []
    writer.share(keys)
    clock.advance(3)
    tier.asked.clear()
    assert node.find(keys) == 2
    assert tier.asked == [[name_of(keys[1])]]
    clock.advance(60)
    assert node.level.known_prefix(keys) == 0


def test_a_block_that_has_gone_since_is_a_miss(node, writer, tier):
    """Another node deleted it; it is not asked for again at once."""
    keys = keys_of(2)
    writer.share(keys)
    node.find(keys)
    tier.drop([name_of(keys[0])])
    assert node.read(keys)[0] == [Miss(), Hit("remote")]
    assert node.level.known_prefix(keys) == 0


def test_a_bad_block_is_zeroed_deleted_and_not_asked_for_again(node, writer, tier, clock):
    """It is a miss for the next request, without a question, for half a minute."""
    keys = keys_of(3)
    writer.share(keys)
    node.find(keys)
    tier.faults.flip[name_of(keys[1])] = -1
    outcomes, buffers = node.read(keys)
    assert outcomes == [Hit("remote"), Corrupt("remote", Reason.CORRUPT), Hit("remote")]
    assert not any(buffers[1])
    assert Refused(tier="remote", blocks=1, reason=Reason.CORRUPT) in node.events
    assert name_of(keys[1]) not in tier.inner.values
    tier.asked.clear()
    assert node.find(keys) == 1
    assert tier.asked == []
    clock.advance(31)
    node.find(keys)
    assert [name_of(keys[1])] in tier.asked


def test_a_good_block_is_written_over_a_bad_one(node, writer, tier):
    """Even if the store neither deleted the bad one nor admits that it is bad."""
    keys = keys_of(1)
    name = name_of(keys[0])
    writer.share(keys)
    node.find(keys)
    tier.faults.keep.add(name)
    tier.inner.values[name] = tier.inner.values[name][:-1] + b"?"
    node.read(keys)
    assert name in tier.inner.values
    node.share(keys)
    assert tier.inner.values[name].endswith(bytes(truth(keys[0])))
    assert node.read(keys)[0] == [Hit("remote")]


def _spoil(node: Node, writer: Node, tier: Counting, keys) -> None:
    """The first block is bad for good in the store, and `node` finds out."""
    name = name_of(keys[0])
    writer.share(keys[:1])
    tier.faults.keep.add(name)
    tier.inner.values[name] = tier.inner.values[name][:-1] + b"?"
    assert node.find(keys[:1]) == 1
    assert node.read(keys[:1])[0] == [Corrupt("remote", Reason.CORRUPT)]


def test_a_late_answer_does_not_bring_a_bad_block_back(node, writer, tier):
    """The store still has it, says a probe that was asked before it was read."""
    keys = keys_of(1)
    node.level.probe(SPACE, keys)
    node.executor.hold()
    _spoil(node, writer, tier, keys)
    node.executor.unhold()
    node.settle()
    assert node.level.known_prefix(keys) == 0


def test_a_write_that_only_asked_for_a_block_does_not_bring_it_back(node, writer, tier):
    """It was found bad while the rest of the run was sent."""
    keys = keys_of(2)
    writer.share(keys[:1])
    node.offer(keys)
    node.executor.step()  # asks
    node.poll()
    node.executor.hold()  # sends
    _spoil(node, writer, tier, keys)
    node.executor.unhold()
    tier.sent.clear()
    node.settle()
    assert tier.sent == [name_of(keys[1])]
    assert node.level.known_prefix(keys[:1]) == 0
    assert node.level.known_prefix(keys[1:]) == 1


def test_what_goes_bad_while_a_write_asks_for_it_is_written_over(node, writer, tier):
    """The good block is at hand, and the store's word counts for nothing."""
    keys = keys_of(1)
    node.offer(keys)
    node.executor.hold()  # asks
    _spoil(node, writer, tier, keys)
    node.executor.unhold()
    node.settle()
    assert node.level.known_prefix(keys) == 1
    assert node.read(keys)[0] == [Hit("remote")]
    assert node.released == Counter(keys)


@pytest.mark.parametrize("lie", ["swap", "old", "cut"])
def test_no_lie_is_served(node, writer, tier, lie):
    """Another block's value, a value from before, half a value."""
    keys = keys_of(2)
    name = name_of(keys[0])
    writer.share(keys)
    node.find(keys)
    if lie == "swap":
        tier.faults.swap[name] = name_of(keys[1])
    elif lie == "old":
        tier.faults.old.add(name)
    else:
        tier.faults.cut[name] = SIZE // 2
    outcomes, buffers = node.read(keys)
    assert isinstance(outcomes[0], Corrupt)
    assert not any(buffers[0])
    assert buffers[1] == truth(keys[1])


def test_a_claim_that_a_block_is_there_costs_one_miss(node, tier):
    """The store says yes and has nothing."""
    keys = keys_of(1)
    tier.faults.claim.add(name_of(keys[0]))
    assert node.find(keys) == 1
    assert node.read(keys)[0] == [Miss()]
    assert node.level.known_prefix(keys) == 0


def test_a_failing_store_is_unavailable_and_then_left_alone(node, writer, tier, clock):
    """Three failed orders open the breaker, which is told once; a minute later all is well."""
    keys = keys_of(16)
    writer.share(keys)
    node.find(keys)
    tier.faults.read_error = DOWN
    outcomes, buffers = node.read(keys)
    assert outcomes == [Unavailable("remote", Reason.IO_ERROR)] * 16
    assert not any(map(any, buffers))
    assert node.guard.reads.state is State.OPEN
    assert [event.reason for event in node.told(Degraded)] == [Reason.IO_ERROR]
    assert node.level.known_prefix(keys) == 0
    assert node.level.probe(SPACE, keys_of(1, salt=5)).done
    tier.faults.clear()
    clock.advance(60)
    assert node.find(keys) == 16
    assert node.read(keys)[0] == [Hit("remote")] * 16


def test_while_reads_are_paused_nothing_counts_as_there(node, writer, tier):
    """Blocks that were found before, too: a request does not wait for a store that fails."""
    keys, others = keys_of(2), keys_of(12, salt=1)
    writer.share(keys)
    writer.share(others)
    node.find(keys)
    node.find(others)
    tier.faults.read_error = DOWN
    node.read(others)
    assert node.level.known_prefix(keys) == 0
    assert node.read(keys)[0] == [Miss()] * 2
