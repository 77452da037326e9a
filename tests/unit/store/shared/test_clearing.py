"""Clearing a namespace of a shared store."""

from __future__ import annotations

from collections import Counter

from shared_harness import (
    SIZE,
    SPACE,
    Node,
    keys_of,
    name_of,
)

from pagoda.core.errors import TierFault, TierTimeout
from pagoda.core.events import Degraded, Reason
from pagoda.core.identity import NamespaceId

DOWN = TierFault("down", tier="remote")
OTHER = NamespaceId(bytes(32))


def clear(node: Node, space: NamespaceId = SPACE):
    clearing = node.level.clear(space)
    node.settle()
    return clearing


def test_clearing_deletes_a_namespace_and_says_what_is_left(node, writer, tier):
    """Nothing of it is found any more, and nothing of another one is touched."""
    keys = keys_of(5)
    writer.share(keys)
    tier.inner.values["ff" * 32 + "/" + "ee" * 32] = b"other"
    node.find(keys)
    clearing = clear(node)
    assert clearing.done
    assert (clearing.result.dropped, clearing.result.left) == (5, 0)
    assert list(tier.inner.values.values()) == [b"other"]
    assert node.level.known_prefix(keys) == 0


def test_clearing_waits_for_the_write_under_way(tier, clock):
    """A block that was being written does not come back; one that waited is never written."""
    node = Node(tier, clock=clock, run_bytes=SIZE)
    keys = keys_of(3)
    node.offer(keys)
    clearing = clear(node)
    assert tier.sent == [name_of(keys[0])]
    assert clearing.result.left == 0
    assert tier.inner.values == {}
    assert node.released == Counter(keys)
    assert node.level.known_prefix(keys) == 0
    assert node.skipped() == Counter({Reason.CLOSED: 2})


def test_nothing_is_written_while_a_namespace_is_cleared(node, tier):
    """Blocks of after the clearing come after the listing."""
    keys = keys_of(2)
    node.level.clear(SPACE)
    node.offer(keys)
    assert node.executor.pending() == 1
    node.settle()
    assert sorted(tier.inner.values) == sorted(name_of(key) for key in keys)


def test_a_clearing_behind_a_stuck_write_ends_at_its_deadline(node, tier, clock):
    """With an error; what the write then brings is deleted and not found."""
    keys = keys_of(2)
    node.offer(keys)
    node.executor.hold()
    clearing = node.level.clear(SPACE)
    clock.advance(60)
    node.poll()
    assert isinstance(clearing.error, TierTimeout)
    node.executor.unhold()
    node.settle()
    assert tier.inner.values == {}
    assert node.level.known_prefix(keys) == 0


def test_a_clearing_that_fails_says_so(node, writer, tier):
    """And later writes go on."""
    writer.share(keys_of(1))
    tier.faults.read_error = DOWN
    clearing = clear(node)
    assert clearing.error is DOWN
    assert Degraded(tier="remote", reason=Reason.IO_ERROR, detail="clearing failed") in node.events
    tier.faults.clear()
    node.share(keys_of(1, salt=1))
    assert len(tier.inner.values) == 2
