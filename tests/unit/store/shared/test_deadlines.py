"""A shared store that is late or hangs: the deadline holds, and late data lands nowhere."""

from __future__ import annotations

from shared_harness import (
    SPACE,
    Node,
    dirty,
    keys_of,
)

from pagoda.core.events import Degraded, Reason, Refused, Restored
from pagoda.core.outcome import Unavailable
from pagoda.seal.envelope import Envelope
from pagoda.tiers.remote.breaker import State

DIRTY = bytes(dirty())


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
