"""The shared level writes: what is sent, what waits, and what is dropped."""

from __future__ import annotations

from collections import Counter

from shared_harness import (
    SIZE,
    WAIT_S,
    Node,
    block_of,
    keys_of,
    name_of,
    truth,
)
from store_harness import Harness

from pagoda.core.errors import TierFull
from pagoda.core.events import Degraded, Reason
from pagoda.store.level import Level
from pagoda.store.queue import Source
from pagoda.tiers.remote.breaker import State


def test_what_is_known_to_be_there_is_not_sent(node, writer, tier):
    """Not even asked for."""
    keys = keys_of(3)
    writer.share(keys)
    node.find(keys)
    tier.asked.clear()
    tier.sent.clear()
    node.share(keys)
    assert (tier.asked, tier.sent) == ([], [])
    assert node.released == Counter(keys)


def test_what_the_store_has_is_not_sent_again(node, writer, tier):
    """Asked for first, by a node that does not know."""
    keys = keys_of(3)
    writer.share(keys[:2])
    tier.sent.clear()
    node.share(keys)
    assert tier.sent == [name_of(keys[2])]
    assert node.released == Counter(keys)
    assert node.level.known_prefix(keys) == 3


def test_a_block_is_queued_once(node, tier):
    """The same block offered twice, waiting or on its way, is released and sent once."""
    keys = keys_of(1)
    node.offer(keys)
    node.offer(keys)
    node.settle()
    assert tier.sent == [name_of(keys[0])]
    assert node.released == Counter({keys[0]: 2})


def test_the_queue_is_bounded_in_bytes(tier, clock):
    """What does not fit is dropped and counted."""
    node = Node(tier, clock=clock, queue_bytes=3 * SIZE, run_bytes=SIZE)
    keys = keys_of(6)
    node.offer(keys[:1])  # on its way at once
    node.offer(keys[1:])
    assert node.skipped() == Counter({Reason.BUSY: 2})
    node.settle()
    assert tier.sent == [name_of(key) for key in keys[:4]]
    assert node.released == Counter(keys)


def test_what_waits_too_long_is_dropped(tier, clock):
    """Behind a stuck store; the block on its way keeps its bytes."""
    node = Node(tier, clock=clock, run_bytes=SIZE)
    keys = keys_of(3)
    node.offer(keys)
    node.executor.hold()
    clock.advance(WAIT_S)
    node.poll()
    assert node.skipped() == Counter({Reason.TIMEOUT: 2})
    assert node.released == Counter(keys[1:])
    node.executor.unhold()
    node.settle()
    assert node.released == Counter(keys)


def test_a_full_store_is_written_to_no_more_for_a_while(tier, clock):
    """Blocks are dropped at once, with the store's reason; reading goes on."""
    node = Node(tier, clock=clock, run_bytes=SIZE)
    tier.faults.write_error = TierFull("full", tier="remote")
    keys = keys_of(8)
    node.share(keys)
    node.share(keys_of(2, salt=3))
    assert len(tier.sent) == 3
    assert node.skipped() == Counter({Reason.FULL: 10})
    assert [(e.reason, e.detail) for e in node.told(Degraded)] == [
        (Reason.FULL, "writes are paused")
    ]
    assert sum(node.released.values()) == 10
    assert node.guard.reads.state is State.CLOSED


def test_blocks_are_read_back_from_where_they_lie(node, tier):
    """Verified, into the level's own memory; what cannot be read back is not sent."""
    keys, lost = keys_of(4), 2
    level = offer_from_slots(node, keys)
    level.sealed.tier.faults.flip_on_read.add(level.state.slot_of(keys[lost]))
    answer(node)
    assert node.orders.touching("upper")
    node.settle()
    kept = [key for key in keys if key != keys[lost]]
    assert tier.sent == [name_of(key) for key in kept]
    assert all(tier.inner.values[name_of(key)].endswith(bytes(truth(key))) for key in kept)
    assert node.skipped() == Counter({Reason.STALE: 1})
    assert node.released == Counter(keys)
    assert not node.orders.touching("upper")


def test_a_local_tier_is_held_only_while_it_is_read(node, tier):
    """Not by the question before it, nor by the sending after it: either may hang for long."""
    keys = keys_of(4)
    offer_from_slots(node, keys)
    held = [(node.orders.touching("upper"), node.orders.touching("remote"))]
    while node.executor.step():
        node.poll()
        held.append((node.orders.touching("upper"), node.orders.touching("remote")))
    assert held == [(False, True), (True, False), (False, True), (False, False)]
    assert len(tier.sent) == 4


def test_a_cancelled_run_reads_no_local_tier_any_more(node, tier):
    """Its tiers may be closed by the time that a hanging question is answered."""
    keys = keys_of(4)
    level = offer_from_slots(node, keys)
    node.level.cancel()
    level.sealed.tier.read = None  # whoever reads now fails
    node.settle()
    assert tier.sent == []
    assert node.released == Counter(keys), "their slots are given back"
    assert node.skipped() == Counter({Reason.CLOSED: 4})


def test_a_run_that_is_read_back_when_it_is_cancelled_is_not_sent(node, tier):
    """The order under way is the last."""
    keys = keys_of(4)
    offer_from_slots(node, keys)
    answer(node)
    node.level.cancel()
    node.settle()
    assert tier.sent == []
    assert node.released == Counter(keys)


def offer_from_slots(node: Node, keys) -> Level:
    """Offer blocks that lie in the slots of a level, which is returned."""
    level = local_level(keys)
    node.level.offer(
        [
            node.pending(keys, i, 1e9, Source(level, level.state.slot_of(key)))
            for i, key in enumerate(keys)
        ]
    )
    return level


def answer(node: Node) -> None:
    """Have the question answered that comes before the sending."""
    node.executor.step()
    node.poll()


def local_level(keys) -> Level:
    """A level of a store that holds these blocks."""
    harness = Harness(lower=0)
    harness.store.save([block_of(keys, i) for i in range(len(keys))], lambda _: None)
    harness.settle()
    (level,) = harness.store.levels()
    return level


def test_cancelling_releases_what_waits(tier, clock):
    """And leaves what is on its way to end."""
    node = Node(tier, clock=clock, run_bytes=SIZE)
    keys = keys_of(3)
    node.offer(keys)
    node.level.cancel()
    assert node.released == Counter(keys[1:])
    node.settle()
    assert node.released == Counter(keys)
    assert node.level.idle
