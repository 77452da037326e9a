"""What is remembered of a shared store."""

from __future__ import annotations

import pytest

from pagoda.core.events import Reason
from pagoda.core.identity import Key, NamespaceId
from pagoda.store.presence import Entry, Memory, Presence
from pagoda.tiers.remote.sealed import Name

MEMORY = Memory(present_s=60.0, absent_s=2.0, failed_s=30.0, limit=3)
SPACES = [NamespaceId(bytes([i]) * 32) for i in range(2)]


def name(number: int, space: int = 0) -> Name:
    return Name(SPACES[space], Key(bytes([number]) * 32))


def test_entries_count_until_they_expire():
    """Each kind for its own time, to the instant."""
    presence = Presence(MEMORY)
    presence.there([name(1)], 100.0)
    presence.not_there([name(2)], Reason.ABSENT, 100.0)
    presence.not_there([name(3)], Reason.CORRUPT, 100.0)
    for number, lasting_s in ((1, 60.0), (2, 2.0), (3, 30.0)):
        assert presence.find(name(number).key, 100.0 + lasting_s - 0.001) is not None
        assert presence.find(name(number).key, 100.0 + lasting_s) is None


def test_only_blocks_that_were_there_have_a_name():
    """The newest word counts."""
    presence = Presence(MEMORY)
    presence.there([name(1), name(2)], 0.0)
    presence.not_there([name(1)], Reason.TIMEOUT, 0.0)
    assert presence.name_of(name(1).key, 0.0) is None
    assert presence.name_of(name(2).key, 0.0) == name(2)
    assert presence.name_of(name(3).key, 0.0) is None
    presence.there([name(1)], 0.0)
    assert presence.name_of(name(1).key, 0.0) == name(1)


@pytest.mark.parametrize("bad", [Reason.CORRUPT, Reason.TRUNCATED, Reason.LOCKED])
def test_a_bad_value_stays_bad_whatever_is_heard_of_its_name(bad):
    """For as long as it counts, and longer if it was late as well; until it is written anew."""
    presence, one = Presence(MEMORY), name(1)
    presence.not_there([one], bad, 0.0)
    presence.there([one], 1.0)
    presence.not_there([one], Reason.ABSENT, 1.0)
    assert presence.find(one.key, 29.9) == Entry(one, bad, 30.0)
    presence.not_there([one], Reason.TIMEOUT, 5.0)
    assert presence.find(one.key, 34.9) == Entry(one, bad, 35.0)
    presence.there([one], 35.0)
    assert presence.name_of(one.key, 35.0) == one
    presence.not_there([one], bad, 36.0)
    presence.stored([one], 37.0)
    assert presence.name_of(one.key, 37.0) == one


def test_beyond_the_limit_the_oldest_word_is_forgotten():
    """A word that was renewed is young again."""
    presence = Presence(MEMORY)
    presence.there([name(1), name(2), name(3)], 0.0)
    presence.there([name(1)], 1.0)
    presence.there([name(4)], 1.0)
    assert len(presence) == 3
    assert presence.find(name(2).key, 1.0) is None
    assert presence.find(name(1).key, 1.0) is not None


def test_a_namespace_is_forgotten_alone():
    """Clearing one tenant says nothing of another."""
    presence = Presence(MEMORY)
    presence.there([name(1), name(2, space=1)], 0.0)
    presence.forget(SPACES[0])
    assert presence.find(name(1).key, 0.0) is None
    assert presence.find(name(2).key, 0.0) is not None
