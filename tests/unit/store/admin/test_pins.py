"""Pins over a live store: what they keep, and when they end."""

from __future__ import annotations

from pathlib import Path

import pytest
from admin_harness import NEW_WEIGHTS, SERVED, WIDTH, AdminHarness
from store_harness import SIZE

from pagoda.core.errors import PinRefused, RequestError
from pagoda.core.events import Overruled, PinBegan, PinDenied, PinEnd, PinsEnded
from pagoda.core.holdings import Scope, tenant_id
from pagoda.core.pins import PinLimits, PinPlace, PinWish
from pagoda.store.pins_file import NAME

HOT = PinLimits(automatic=0.125)


def resident(admin: AdminHarness, id: str) -> dict[str, int]:
    """How many of a pin's blocks are in each tier."""
    status = admin.admin.pins.status(id)
    assert status is not None
    return {place.tier: place.resident for place in status.places}


def test_a_pinned_prefix_outlives_everything_that_is_not(admin: AdminHarness) -> None:
    """In every tier below the device, though nobody ever asks for it again."""
    admin.put(admin.tokens(1))
    admin.put(admin.tokens(2))
    admin.settle()
    id = admin.pin(1)
    admin.fill(10, 40)
    assert resident(admin, id) == {"device": 0, "upper": 4, "lower": 4}
    assert admin.store.match(SERVED.keys(admin.tokens(2), "")) == 0
    assert admin.store.match(SERVED.keys(admin.tokens(1), "")) == 4


def test_blocks_that_come_later_are_pinned_when_they_come(admin: AdminHarness) -> None:
    """A pin names keys: it may be there before its blocks are, on the device, too."""
    id = admin.pin(1)
    admin.put(admin.tokens(1))
    admin.compute(admin.tokens(1))
    admin.fill(10, 40)
    for number in range(10, 20):
        admin.compute(admin.tokens(number))
    assert resident(admin, id) == {"device": 4, "upper": 4, "lower": 4}


def test_unpinned_blocks_go_like_any_other(admin: AdminHarness) -> None:
    """Unpinning frees; so does the end of the pin's time."""
    for first, owner in ((1, "a"), (2, "b")):
        admin.put(admin.tokens(first))
        admin.pin(first, owner=owner)
    admin.admin.pins.remove(None, owner="a")
    admin.fill(10, 40)
    assert admin.store.match(SERVED.keys(admin.tokens(1), "")) == 0
    admin.clock.advance(61)
    admin.fill(60, 40)
    assert admin.store.match(SERVED.keys(admin.tokens(2), "")) == 0
    assert admin.admin.pins.all() == []
    ended = [(event.pins, event.reason) for event in admin.told(PinsEnded)]
    assert ended == [(1, PinEnd.REMOVED), (1, PinEnd.EXPIRED)]


def test_nothing_but_pinning_again_renews_a_pin(admin: AdminHarness) -> None:
    """Neither requests nor look-ups nor probes; and no pin is a lease."""
    admin.put(admin.tokens(1))
    admin.settle()
    id = admin.pin(1, expires_s=60)
    keys = SERVED.keys(admin.tokens(1), "")
    for _ in range(5):
        admin.clock.advance(10)
        admin.read(keys)
        admin.store.match(keys)
        admin.store.probe(SERVED.namespace_of(""), keys)
        admin.admin.lookup(admin.tokens(1), "")
        admin.admin.pins.used(SERVED.namespace_of(""), keys)
    admin.settle()
    assert [level.state.lease_count() for level in admin.store.levels()] == [0, 0]
    admin.clock.advance(9)
    assert [one.id for one in admin.admin.pins.all()] == [id]
    admin.clock.advance(1)
    assert admin.admin.pins.all() == [], "60 s after it was pinned"
    admin.pin(1, expires_s=60)
    admin.clock.advance(59)
    admin.pin(1, expires_s=60)
    admin.clock.advance(59)
    assert [one.id for one in admin.admin.pins.all()] == [id], "renewed"


def test_a_corrupt_pinned_block_is_pinned_again_once_it_is_computed(admin: AdminHarness) -> None:
    """The bad copies leave service; the key stays pinned."""
    admin.put(admin.tokens(1))
    admin.settle()
    id = admin.pin(1)
    last = SERVED.keys(admin.tokens(1), "")[-1]
    for tier, name in ((admin.upper, "upper"), (admin.lower, "lower")):
        tier.flip_at_rest(admin.slot(name, last), size_bytes=SIZE, at=7)
        admin.read(SERVED.keys(admin.tokens(1), ""))
        admin.clock.advance(31)  # no suspect any more
    assert resident(admin, id) == {"device": 0, "upper": 3, "lower": 3}
    admin.pin(1)
    admin.put(admin.tokens(1))
    admin.settle()
    admin.fill(10, 40)
    assert resident(admin, id) == {"device": 0, "upper": 4, "lower": 4}


def test_pins_hold_no_running_request_up(admin: AdminHarness) -> None:
    """When all else is in use, pinned device blocks go, and it is counted."""
    admin.compute(admin.tokens(1))
    id = admin.pin(1)
    for number in (2, 3, 4):
        admin.compute(admin.tokens(number), held=True)
    assert resident(admin, id)["device"] == 4
    assert admin.device.reserve(5) is None
    taken = admin.device.reserve(3)
    assert taken is not None
    admin.settle()
    assert resident(admin, id)["device"] == 1, "the head is the last to go"
    assert admin.told(Overruled) == [Overruled(tier="device", blocks=3)]
    admin.device.give_back(taken)


def test_a_pin_is_told_as_it_stands(admin: AdminHarness) -> None:
    """Whose it is, what is there of it, and where it is kept: the device is too small."""
    admin.put(admin.tokens(1, 6), salt="alice")
    admin.settle()
    admin.pin(1, 6, salt="alice", budget=0.2)
    (status,) = admin.admin.pins.all()
    assert (status.owner, status.tenant, status.budget) == ("a", tenant_id("alice"), 0.2)
    assert (status.blocks, status.tokens, status.durable) == (6, 6 * WIDTH, True)
    assert status.until_s == admin.clock.wall_ms() / 1000 + 60
    assert status.places == (
        PinPlace(tier="device", granted=False, resident=0),
        PinPlace(tier="upper", granted=True, resident=6),
        PinPlace(tier="lower", granted=True, resident=6),
    )
    assert [tier.pinned for tier in admin.admin.tiers()] == [6, 6]
    assert admin.admin.pins.stats() == {
        "pins": 1, "device_blocks_pinned": 0, "upper_blocks_pinned": 6, "lower_blocks_pinned": 6,
    }  # fmt: skip
    assert admin.told(PinBegan) == [PinBegan(blocks=6)]
    assert "alice" not in (admin.directory / NAME).read_text()


def test_what_exceeds_a_budget_is_refused_and_changes_nothing(admin: AdminHarness) -> None:
    """An owner's, the pin's own, that of all; the sum is told, and the refusal counted."""
    admin.pin(1, 12)
    with pytest.raises(PinRefused, match=r"12 of 16 blocks in use, and the pin needs 8 more"):
        admin.pin(2, 8)
    with pytest.raises(PinRefused, match="the pin's own"):
        admin.pin(2, 8, owner="b", budget=0.1)
    admin.pin(2, 16, owner="b")
    with pytest.raises(PinRefused, match="the pins' budget in"):
        admin.pin(3, 8, owner="c")
    assert len(admin.admin.pins.all()) == 2
    assert {event.tier for event in admin.told(PinDenied)} <= {"upper", "lower"}
    assert len(admin.told(PinDenied)) == 3


def test_a_pin_that_is_over_uses_no_budget(admin: AdminHarness) -> None:
    """From that moment on, whether or not the engine has turned since."""
    admin.pin(1, 16, expires_s=60)
    admin.clock.advance(60)
    admin.pin(2, 16)
    assert len(admin.admin.pins.all()) == 1


@pytest.mark.parametrize(
    ("wish", "tokens"),
    [
        (PinWish(owner="a", expires_s=0), 64),
        (PinWish(owner="a", expires_s=float("inf")), 64),
        (PinWish(owner="a", expires_s=float("nan")), 64),
        (PinWish(owner="a", expires_s=31 * 86_400), 64),
        (PinWish(owner="a", budget=0), 64),
        (PinWish(owner="a", budget=1.5), 64),
        (PinWish(owner=""), 64),
        (PinWish(owner="x" * 65), 64),
        (PinWish(owner="a\n"), 64),
        (PinWish(owner="a"), WIDTH - 1),
    ],
)
def test_what_cannot_be_a_pin_is_refused(admin: AdminHarness, wish: PinWish, tokens: int) -> None:
    """Above all one without an end; and a prompt without a whole block."""
    with pytest.raises(RequestError):
        admin.admin.pin([1] * tokens, "", wish, lambda survives: None)
    assert admin.admin.pins.all() == []


def test_ten_years_are_the_longest_when_there_is_no_limit(tmp_path: Path) -> None:
    """A file can say it, and a restart reads it."""
    harness = AdminHarness(tmp_path, limits=PinLimits(longest_s=0))
    with pytest.raises(RequestError, match="lasts"):
        harness.pin(1, expires_s=1e300)
    harness.pin(1, expires_s=3650 * 86_400)
    harness.restart()
    assert len(harness.admin.pins.all()) == 1


def test_pins_survive_a_restart_and_go_on_to_hold(admin: AdminHarness) -> None:
    """Exactly those that are not over, with their ends and their tiers."""
    admin.put(admin.tokens(1))
    admin.pin(1)
    admin.pin(2, expires_s=10, owner="b")
    (before, _) = admin.admin.pins.all()
    admin.clock.advance(11)
    admin.open()  # a crash: nothing is written down at the end
    (after,) = admin.admin.pins.all()
    assert after == before
    admin.fill(10, 40)
    assert resident(admin, after.id) == {"device": 0, "upper": 4, "lower": 4}


def test_pins_of_other_weights_lapse(admin: AdminHarness) -> None:
    """Their keys can not be asked for any more."""
    admin.pin(1)
    admin.served = NEW_WEIGHTS
    admin.restart()
    assert admin.admin.pins.all() == []
    assert admin.told(PinsEnded)[-1] == PinsEnded(pins=1, reason=PinEnd.LAPSED)
    assert [level.residency.pinned.keys for level in admin.store.levels()] == [frozenset()] * 2


@pytest.mark.parametrize(
    ("scope", "kept"),
    [
        (Scope(), set()),
        (Scope(salt="alice"), {"shared", "longer"}),
        (Scope(tenant=tenant_id("alice")), {"shared", "longer"}),
        (Scope(namespace=SERVED.namespace_of("").hex()), {"alice"}),
        (Scope(older_than_s=0), {"shared", "longer", "alice"}),
    ],
)
def test_clearing_ends_the_pins_of_what_it_clears(
    admin: AdminHarness, scope: Scope, kept: set[str]
) -> None:
    """A cleared tenant's blocks are not held for it when they come again. An age ends no pin."""
    admin.pin(1, owner="shared")
    admin.pin(2, 6, owner="longer")
    admin.pin(3, owner="alice", salt="alice")
    admin.clear(scope)
    assert {one.owner for one in admin.admin.pins.all()} == kept


def test_clearing_a_prefix_ends_the_pins_that_reach_into_it(admin: AdminHarness) -> None:
    """Those that end before it stay."""
    prompt = [1] * WIDTH + list(range(WIDTH * 5))
    for blocks in (2, 4, 6):
        wish = PinWish(owner=str(blocks))
        admin.admin.pin(prompt[: WIDTH * blocks], "", wish, lambda survives: None)
    admin.clear(Scope(prompt=tuple(prompt[: WIDTH * 4])))
    assert [one.owner for one in admin.admin.pins.all()] == ["2"]


def test_an_unknown_pin_is_no_pin(admin: AdminHarness) -> None:
    """And neither a pin nor an owner is everybody's."""
    admin.pin(1)
    with pytest.raises(RequestError, match="no such pin"):
        admin.admin.pins.remove("0" * 16, owner=None)
    with pytest.raises(RequestError, match="name a pin or an owner"):
        admin.admin.pins.remove(None, owner=None)
    assert admin.admin.pins.remove(None, owner="nobody") == 0
    assert len(admin.admin.pins.all()) == 1


# The hottest.


def ask(admin: AdminHarness, first: int, times: int) -> None:
    """Requests for a prompt of four blocks come."""
    keys = SERVED.keys(admin.tokens(first), "")
    for _ in range(times):
        admin.admin.pins.used(SERVED.namespace_of(""), keys)


def test_the_hottest_are_pinned_and_cool_down(tmp_path: Path) -> None:
    """What is asked for often stays without being asked to, and is let go when that is over."""
    harness = AdminHarness(tmp_path, limits=HOT)
    harness.put(harness.tokens(1))
    harness.settle()
    ask(harness, 1, 4)
    ask(harness, 2, 2)
    harness.clock.advance(10)
    harness.settle()
    assert [tier.pinned for tier in harness.admin.tiers()] == [4, 4]
    harness.fill(10, 40)
    assert harness.store.match(SERVED.keys(harness.tokens(1), "")) == 4
    harness.admin.pins.check_invariants()
    harness.clock.advance(7200)  # two half-lives
    harness.settle()
    assert [tier.pinned for tier in harness.admin.tiers()] == [0, 0]
    assert harness.admin.pins.all() == [], "they are no pins of anybody"


def test_the_hottest_stay_within_their_own_budget(tmp_path: Path) -> None:
    """However many are hot; the named pins' budget is not touched, nor are they counted."""
    harness = AdminHarness(tmp_path, limits=HOT)
    harness.pin(1, 16)
    for first in range(20):
        ask(harness, first, 5)
    harness.clock.advance(10)
    harness.settle()
    for level in harness.store.levels():
        assert len(level.residency.pinned.keys) == 16 + 8
    harness.admin.pins.check_invariants()
    harness.clear(Scope())
    assert [level.residency.pinned.keys for level in harness.store.levels()] == [frozenset()] * 2


def test_nothing_is_hot_by_default(admin: AdminHarness) -> None:
    """Automatic pinning is asked for by a setting."""
    ask(admin, 1, 100)
    admin.clock.advance(100)
    admin.settle()
    assert all(level.residency.pinned.mask is None for level in admin.store.levels())
