"""The shared level: two nodes, one store that may lie, a clock that stands still."""

from __future__ import annotations

from collections import Counter

import pytest
from shared_harness import (
    SIZE,
    SPACE,
    WAIT_S,
    Node,
    block_of,
    dirty,
    keys_of,
    name_of,
    truth,
)
from store_harness import Harness

from pagoda.core.errors import TierFault, TierFull, TierTimeout
from pagoda.core.events import Degraded, Reason, Refused, Restored, Skipped, Stored
from pagoda.core.identity import NamespaceId
from pagoda.core.outcome import Corrupt, Hit, Miss, Unavailable
from pagoda.seal.envelope import Envelope
from pagoda.store.level import Level
from pagoda.store.queue import Source
from pagoda.testing.clock import FakeClock
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared
from pagoda.tiers.remote.breaker import State

DOWN = TierFault("down", tier="remote")
DIRTY = bytes(dirty())


class Counting(FaultyShared):
    """Remembers what was asked for and what was sent."""

    def __init__(self) -> None:
        super().__init__(MemoryShared())
        self.asked: list[list[str]] = []
        self.sent: list[str] = []
        self.on_get = self.on_has = lambda: None

    def has(self, names):
        self.asked.append(list(names))
        found = super().has(names)
        self.on_has()
        return found

    def put(self, names, values):
        self.sent += names
        super().put(names, values)

    def get(self, names, limit_bytes):
        found = super().get(names, limit_bytes)
        self.on_get()
        return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tier() -> Counting:
    return Counting()


@pytest.fixture
def node(tier: Counting, clock: FakeClock) -> Node:
    return Node(tier, clock=clock)


@pytest.fixture
def writer(tier: Counting, clock: FakeClock) -> Node:
    """Another node, which fills the store."""
    return Node(tier, clock=clock, seed=1)


# Reading.


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


# Deadlines.


def test_a_restore_is_over_at_its_deadline_and_its_buffers_are_free_at_once(node, writer, clock):
    """No I/O thread had begun; when one does, it touches nothing."""
    keys = keys_of(2)
    writer.share(keys)
    node.find(keys)
    restore = node.start(keys, wait_s=1.0)
    assert node.level.next_deadline_s() == restore.deadline_s
    clock.advance(1.0)
    node.poll()
    assert restore.outcomes == [Unavailable("remote", Reason.TIMEOUT)] * 2
    assert restore.drained
    assert not any(map(any, restore.into))
    reuse(restore)
    node.settle()
    assert all(bytes(buffer) == DIRTY for buffer in restore.into)
    assert node.level.known_prefix(keys) == 0, "late blocks are left alone for a while"
    assert Refused(tier="remote", blocks=2, reason=Reason.TIMEOUT) in node.events


def test_data_that_arrives_after_the_deadline_lands_nowhere(node, writer, tier, clock):
    """The owner takes the buffers back while the network hangs, and uses them again."""
    keys = keys_of(2)
    writer.share(keys)
    node.find(keys)
    restore = node.start(keys, wait_s=1.0)

    def deadline_passes() -> None:
        clock.advance(1.0)
        node.level.expire()
        assert restore.drained
        reuse(restore)

    tier.on_get = deadline_passes
    node.settle()
    assert restore.outcomes == [Unavailable("remote", Reason.TIMEOUT)] * 2
    assert all(bytes(buffer) == DIRTY for buffer in restore.into)
    assert node.told(Restored) == []


def test_late_data_is_late_even_if_the_owner_did_not_look(node, writer, tier, clock):
    """The I/O thread sees the clock itself; the owner hears of it when the order lands."""
    keys = keys_of(2)
    writer.share(keys)
    node.find(keys)
    restore = node.start(keys, wait_s=1.0)
    tier.on_get = lambda: clock.advance(1.0)
    node.settle()
    assert restore.outcomes == [Unavailable("remote", Reason.TIMEOUT)] * 2
    assert restore.drained
    assert not any(map(any, restore.into))
    assert node.level.idle


def test_buffers_that_are_being_filled_stay_taken_until_that_has_ended(tier, writer, clock):
    """The deadline passes between the first byte and the last: done, but not drained."""
    keys = keys_of(1)
    writer.share(keys)
    seen: list[tuple[bool, bool]] = []

    class Interrupted(Envelope):
        def unwrap(self, seal, stored, into):
            clock.advance(2.0)
            node.level.expire()
            seen.append((restore.done, restore.drained))
            return super().unwrap(seal, stored, into)

    node = Node(tier, clock=clock, envelope=Interrupted())
    node.find(keys)
    restore = node.start(keys)
    node.settle()
    assert seen == [(True, False)]
    assert restore.drained
    assert restore.outcomes == [Unavailable("remote", Reason.TIMEOUT)]
    assert node.told(Restored) == []


def test_a_probe_is_over_at_its_deadline(node, writer, tier, clock):
    """The request goes on without it; a thread that comes later asks nothing."""
    keys = keys_of(2)
    writer.share(keys)
    probe = node.level.probe(SPACE, keys)
    node.executor.hold()
    clock.advance(0.25)
    node.poll()
    assert probe.done
    assert node.level.known_prefix(keys) == 0
    assert node.level.probe(SPACE, keys).done, "not asked again at once"
    tier.asked.clear()
    node.executor.unhold()
    node.settle()
    assert tier.asked == []


def test_a_late_answer_is_still_a_fact(node, writer, tier, clock):
    """The probe is over, but what was found is remembered."""
    keys = keys_of(2)
    writer.share(keys)
    probe = node.level.probe(SPACE, keys)

    def deadline_passes() -> None:
        clock.advance(0.25)
        node.level.expire()
        assert probe.done

    tier.on_has = deadline_passes
    node.settle()
    assert node.level.known_prefix(keys) == 2


def test_a_hanging_store_opens_the_breaker(node, writer, clock):
    """Its calls never return, so the owner reports them."""
    for salt in range(3):
        keys = keys_of(1, salt=salt)
        node.level.probe(SPACE, keys)
        node.executor.hold()
        clock.advance(0.25)
        node.poll()
    assert node.guard.reads.state is State.OPEN
    assert [event.reason for event in node.told(Degraded)] == [Reason.TIMEOUT]


def reuse(restore) -> None:
    """Somebody else's bytes go into buffers that were given back."""
    for buffer in restore.into:
        buffer[:] = DIRTY


# Writing.


def skipped(node: Node) -> Counter[Reason]:
    """Blocks that were not stored, by reason."""
    return Counter(event.reason for event in node.told(Skipped) for _ in range(event.blocks))


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
    assert skipped(node) == Counter({Reason.BUSY: 2})
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
    assert skipped(node) == Counter({Reason.TIMEOUT: 2})
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
    assert skipped(node) == Counter({Reason.FULL: 10})
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
    assert skipped(node) == Counter({Reason.STALE: 1})
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
    assert skipped(node) == Counter({Reason.CLOSED: 4})


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


# Clearing.

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
    assert skipped(node) == Counter({Reason.CLOSED: 2})


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
