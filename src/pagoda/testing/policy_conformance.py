"""What every eviction policy must do. A third party's policy runs it in five lines:

class TestMyPolicy(EvictionPolicyConformance):
    @pytest.fixture
    def policy(self):
        return MyPolicy(SLOTS)
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from pagoda.core.identity import ROOT, Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy import Ending, Hint, Policy, Request
from pagoda.core.residency import Residency
from pagoda.core.state import TierState

SLOTS = 16
_WALK_STEPS = 2000


def no_leases() -> Leases:
    """Nobody holds any slot."""
    return np.zeros(SLOTS, dtype=np.int32)


def leases_on(slots: Iterable[int]) -> Leases:
    """One lease on each of these slots."""
    leases = no_leases()
    leases[list(slots)] = 1
    return leases


def insert(policy: Policy, slots: Iterable[int]) -> None:
    """Publish blocks of one chain to the policy, under keys that belong to their slots."""
    chosen = list(slots)
    keys = [_key(0, slot) for slot in chosen]
    policy.insert(chosen, keys, [ROOT, *keys][: len(keys)])


def check_victims(policy: Policy, count: int, leases: Leases) -> list[int]:
    """Ask for victims, and hold them against the contract."""
    tracked = policy.tracked()
    victims = policy.victims(count, leases)
    free_to_go = {slot for slot in tracked if leases[slot] == 0}
    assert len(victims) == len(set(victims)), f"a slot is named twice: {victims}"
    assert set(victims) <= tracked, f"{set(victims) - tracked} were named, but are not tracked"
    assert set(victims) <= free_to_go, f"{set(victims) - free_to_go} were named, but are leased"
    wanted = min(count, len(free_to_go))
    assert len(victims) == wanted, f"{len(victims)} victims for {count}, of {len(free_to_go)}"
    assert policy.tracked() == tracked, "asking for victims changed what is tracked"
    return victims


class EvictionPolicyConformance:
    """Tests for pytest; a subclass gives a `policy` fixture: new, for SLOTS slots."""

    def test_it_tracks_what_is_published(self, policy: Policy) -> None:
        """Inserted slots until they are removed, whatever is touched between."""
        insert(policy, [3, 5, 7])
        insert(policy, [1])
        policy.touch([5, 1])
        policy.remove([7, 3])
        assert policy.tracked() == {1, 5}

    def test_it_names_as_many_as_were_asked_for(self, policy: Policy) -> None:
        """Not one more, which would drop a block for nothing; not one less, which would refuse
        a block beside room for it."""
        insert(policy, list(range(SLOTS)))
        for count in range(SLOTS + 1):
            check_victims(policy, count, no_leases())

    def test_it_names_all_there_are_when_asked_for_more(self, policy: Policy) -> None:
        """And none when it tracks none."""
        assert check_victims(policy, 4, no_leases()) == []
        insert(policy, [2, 9])
        assert set(check_victims(policy, SLOTS, no_leases())) == {2, 9}

    def test_it_never_names_a_leased_slot(self, policy: Policy) -> None:
        """Whichever slots are held, and however often."""
        insert(policy, list(range(SLOTS)))
        for held in ([0], [SLOTS - 1], range(0, SLOTS, 2), range(SLOTS)):
            leases = 3 * leases_on(held)
            for count in (1, SLOTS // 2, SLOTS):
                check_victims(policy, count, leases)

    def test_it_never_names_a_removed_slot(self, policy: Policy) -> None:
        """Removed in any place of its order, and inserted again."""
        insert(policy, list(range(SLOTS)))
        for slot in (0, SLOTS - 1, SLOTS // 2):
            policy.remove([slot])
            check_victims(policy, SLOTS, no_leases())
        insert(policy, [0])
        assert 0 in check_victims(policy, SLOTS, no_leases())

    def test_asking_changes_nothing(self, policy: Policy) -> None:
        """The same question has the same answer."""
        insert(policy, [4, 6, 8, 10])
        policy.touch([6])
        first = check_victims(policy, 2, leases_on([4]))
        assert check_victims(policy, 2, leases_on([4])) == first

    def test_empty_batches_do_nothing(self, policy: Policy) -> None:
        """No slots, no effect."""
        insert(policy, [])
        policy.touch([])
        policy.remove([])
        assert policy.tracked() == set()

    def test_a_long_life_keeps_to_the_contract(self, policy: Policy) -> None:
        """Random changes under random leases, each answer checked against plain sets."""
        rng = random.Random(7)  # noqa: S311 - a test's order of events
        published: list[int] = []
        for _ in range(_WALK_STEPS):
            absent = [slot for slot in range(SLOTS) if slot not in published]
            if absent and rng.random() < 0.4:
                slots = rng.sample(absent, rng.randint(1, len(absent)))
                insert(policy, slots)
                published += slots
            elif published and rng.random() < 0.5:
                policy.touch(rng.sample(published, rng.randint(1, len(published))))
            elif published:
                gone = rng.sample(published, rng.randint(1, len(published)))
                policy.remove(gone)
                published = [slot for slot in published if slot not in gone]
            assert policy.tracked() == set(published)
            held = [slot for slot in range(SLOTS) if rng.random() < 0.3]
            check_victims(policy, rng.randint(0, SLOTS), leases_on(held))

    def test_requests_may_overlap_under_any_clock(self, policy: Policy) -> None:
        """Requests end in any order, elsewhere than they began, or never; what they ask for may
        have gone meanwhile, and time may stand still, jump or run back."""
        rng = random.Random(3)  # noqa: S311 - a test's order of events
        residency = Residency(TierState("tier", SLOTS), policy)
        begun: list[Request] = []
        at_s = 0.0
        for turn in range(_WALK_STEPS):
            at_s += rng.choice([0.0, 5.0, 600.0, 1e7, -1e7])
            hint = rng.choice(list(Hint))
            keys = _chain(rng)
            begun.append(Request(keys=keys, at_s=at_s, tokens=len(keys) * 16, hint=hint))
            residency.begin(begun[-1])
            residency.state.release(residency.lease_prefix(keys))
            if rng.random() < 0.2:
                residency.retire(list(residency.state.published_slots())[::2])
            if rng.random() < 0.8:
                over = begun.pop(rng.randrange(len(begun)))
                made = [*over.keys, *_chain(rng)[len(over.keys) :]]
                _bring(residency, made)
                residency.end(over, Ending(keys=made, at_s=at_s, output_tokens=turn, hint=hint))
            residency.check_invariants()
        assert len(residency.reserve(SLOTS)) == SLOTS

    def test_a_tier_reserves_exactly_what_it_lacks(self, policy: Policy) -> None:
        """Under a real residency state, a full tier drops as many blocks as are to come, and
        no key of a dropped block is found."""
        residency = Residency(TierState("tier", SLOTS), policy)
        for turn in range(40):
            wanted = 1 + turn % 5
            free = residency.state.free_count()
            before = residency.evicted
            slots = residency.reserve(wanted)
            assert len(slots) == wanted, "room could be made, and was not"
            assert residency.evicted - before == max(0, wanted - free), "too much was dropped"
            keys = [_key(turn, number) for number in range(wanted)]
            residency.publish(slots, keys, [ROOT, *keys[:-1]])
            residency.state.release(slots)
            residency.check_invariants()
        assert residency.state.published_count() == SLOTS


def _chain(rng: random.Random) -> list[Key]:
    """One of a few chains, or of their beginnings, some longer than the tier."""
    turn = rng.randrange(4)
    return [_key(turn, number) for number in range(rng.choice([0, 1, 3, SLOTS // 2, 2 * SLOTS]))]


def _bring(residency: Residency, chain: list[Key]) -> None:
    """Publish what is not there of a chain, as far as it is admitted and there is room."""
    known = residency.state.slot_of
    fresh = [
        (key, up) for key, up in zip(chain, [ROOT, *chain], strict=False) if known(key) is None
    ]
    keys, parents = [key for key, _ in fresh], [up for _, up in fresh]
    admitted = residency.admits(keys, parents)
    slots = residency.reserve(min(SLOTS, len(admitted)))
    new = list(admitted)[: len(slots)]
    residency.publish(slots, [keys[at] for at in new], [parents[at] for at in new])
    residency.state.release(slots)


def _key(turn: int, number: int) -> Key:
    return Key((turn + 1).to_bytes(16, "big") + number.to_bytes(16, "big"))
