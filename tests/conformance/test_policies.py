"""Every policy passes the public conformance suite, and the suite finds broken ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy import REGISTRY, Lru, Policy
from pagoda.core.policy.belady import Belady
from pagoda.testing.policy_conformance import SLOTS, EvictionPolicyConformance


class TestRegistered(EvictionPolicyConformance):
    """Whatever a setting can name."""

    @pytest.fixture(params=REGISTRY)
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        return REGISTRY[request.param](SLOTS)


class TestBelady(EvictionPolicyConformance):
    """The bound, with nothing to come."""

    @pytest.fixture
    def policy(self) -> Policy:
        return Belady(SLOTS)


class OneTooMany(Lru):
    """The off-by-one that took a whole service down."""

    def victims(self, count: int, leases: Leases) -> list[int]:
        return super().victims(count + 1, leases)


class OneTooFew(Lru):
    def victims(self, count: int, leases: Leases) -> list[int]:
        return super().victims(max(count - 1, 0), leases)


class Leased(Lru):
    def victims(self, count: int, leases: Leases) -> list[int]:
        return super().victims(count, leases * 0)


class HeldTwice(Lru):
    """Takes a slot with several leases for free."""

    def victims(self, count: int, leases: Leases) -> list[int]:
        return super().victims(count, leases * (leases == 1))


class Twice(Lru):
    def victims(self, count: int, leases: Leases) -> list[int]:
        chosen = super().victims(count, leases)
        return [*chosen[:-1], chosen[0]] if len(chosen) > 1 else chosen


class Untracked(Lru):
    """Names a slot that was removed long ago."""

    def remove(self, slots: list[int]) -> None:
        super().remove(slots)
        self.last = slots[-1] if slots else None

    def victims(self, count: int, leases: Leases) -> list[int]:
        chosen = super().victims(count, leases)
        last = getattr(self, "last", None)
        return [last, *chosen[1:]] if chosen and last is not None else chosen


class Forgetful(Lru):
    """Loses the last of a batch."""

    def insert(self, slots: list[int], keys: list[Key], parents: list[Key]) -> None:
        super().insert(slots[:-1] if len(slots) > 2 else slots, keys, parents)


class Impatient(Lru):
    """Forgets its victims when it is asked for them."""

    def victims(self, count: int, leases: Leases) -> list[int]:
        chosen = super().victims(count, leases)
        self.remove(chosen)
        return chosen


@pytest.mark.parametrize(
    "broken",
    [OneTooMany, OneTooFew, Leased, HeldTwice, Twice, Untracked, Forgetful, Impatient],
    ids=lambda cls: cls.__name__,
)
def test_a_broken_policy_is_found(broken: Callable[[int], Policy]) -> None:
    """At least one test of the suite fails for each way to break the contract."""
    suite = EvictionPolicyConformance()
    tests = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
    assert len(tests) >= 8
    assert any(_fails(test, broken(SLOTS)) for test in tests)


def _fails(test: Callable[[Policy], None], policy: Policy) -> bool:
    try:
        test(policy)
    except (AssertionError, KeyError, ValueError):
        return True
    return False
