"""Pins over a live store: what they keep, when they end, and what a restart finds of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from admin_harness import NEW_WEIGHTS, SERVED, WIDTH, AdminHarness
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from store_harness import SIZE

from pagoda.core.errors import FormatError, PinRefused, RequestError
from pagoda.core.events import Overruled, PinBegan, PinDenied, PinEnd, PinsEnded
from pagoda.core.holdings import Scope, tenant_id
from pagoda.core.pins import PinLimits, PinPlace, PinWish
from pagoda.store.kept import read_content, text_of
from pagoda.store.pins_file import NAME, PinsFile

HOT = PinLimits(automatic=0.125)


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminHarness]:
    """64 blocks in each tier, 16 on the device; half may be pinned, a quarter by one owner."""
    harness = AdminHarness(tmp_path)
    yield harness
    harness.settle()
    harness.store.check_invariants()
    harness.admin.pins.check_invariants()


def pin(
    admin: AdminHarness,
    first: int,
    blocks: int = 4,
    *,
    owner: str = "a",
    salt: str = "",
    expires_s: float | None = 60,
    budget: float | None = None,
) -> str:
    """Pin a prompt, and wait until it is written down."""
    wish = PinWish(owner=owner, expires_s=expires_s, budget=budget)
    told: list[bool] = []
    id = admin.admin.pin(admin.tokens(first, blocks), salt, wish, told.append)
    admin.settle()
    assert told == [True]
    return id


def fill(admin: AdminHarness, first: int, prompts: int) -> None:
    """Store other prompts of four blocks each, one after the other."""
    for number in range(first, first + prompts):
        admin.put(admin.tokens(number))
        admin.settle()


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
    id = pin(admin, 1)
    fill(admin, 10, 40)
    assert resident(admin, id) == {"device": 0, "upper": 4, "lower": 4}
    assert admin.store.match(SERVED.keys(admin.tokens(2), "")) == 0
    assert admin.store.match(SERVED.keys(admin.tokens(1), "")) == 4


def test_blocks_that_come_later_are_pinned_when_they_come(admin: AdminHarness) -> None:
    """A pin names keys: it may be there before its blocks are, on the device, too."""
    id = pin(admin, 1)
    admin.put(admin.tokens(1))
    admin.compute(admin.tokens(1))
    fill(admin, 10, 40)
    for number in range(10, 20):
        admin.compute(admin.tokens(number))
    assert resident(admin, id) == {"device": 4, "upper": 4, "lower": 4}


def test_unpinned_blocks_go_like_any_other(admin: AdminHarness) -> None:
    """Unpinning frees; so does the end of the pin's time."""
    for first, owner in ((1, "a"), (2, "b")):
        admin.put(admin.tokens(first))
        pin(admin, first, owner=owner)
    admin.admin.pins.remove(None, owner="a")
    fill(admin, 10, 40)
    assert admin.store.match(SERVED.keys(admin.tokens(1), "")) == 0
    admin.clock.advance(61)
    fill(admin, 60, 40)
    assert admin.store.match(SERVED.keys(admin.tokens(2), "")) == 0
    assert admin.admin.pins.all() == []
    ended = [(event.pins, event.reason) for event in admin.told(PinsEnded)]
    assert ended == [(1, PinEnd.REMOVED), (1, PinEnd.EXPIRED)]


def test_nothing_but_pinning_again_renews_a_pin(admin: AdminHarness) -> None:
    """Neither requests nor look-ups nor probes; and no pin is a lease."""
    admin.put(admin.tokens(1))
    admin.settle()
    id = pin(admin, 1, expires_s=60)
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
    pin(admin, 1, expires_s=60)
    admin.clock.advance(59)
    pin(admin, 1, expires_s=60)
    admin.clock.advance(59)
    assert [one.id for one in admin.admin.pins.all()] == [id], "renewed"


def test_a_corrupt_pinned_block_is_pinned_again_once_it_is_computed(admin: AdminHarness) -> None:
    """The bad copies leave service; the key stays pinned."""
    admin.put(admin.tokens(1))
    admin.settle()
    id = pin(admin, 1)
    last = SERVED.keys(admin.tokens(1), "")[-1]
    for tier, name in ((admin.upper, "upper"), (admin.lower, "lower")):
        tier.flip_at_rest(admin.slot(name, last), size_bytes=SIZE, at=7)
        admin.read(SERVED.keys(admin.tokens(1), ""))
        admin.clock.advance(31)  # no suspect any more
    assert resident(admin, id) == {"device": 0, "upper": 3, "lower": 3}
    pin(admin, 1)
    admin.put(admin.tokens(1))
    admin.settle()
    fill(admin, 10, 40)
    assert resident(admin, id) == {"device": 0, "upper": 4, "lower": 4}


def test_pins_hold_no_running_request_up(admin: AdminHarness) -> None:
    """When all else is in use, pinned device blocks go, and it is counted."""
    admin.compute(admin.tokens(1))
    id = pin(admin, 1)
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
    pin(admin, 1, 6, salt="alice", budget=0.2)
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
    pin(admin, 1, 12)
    with pytest.raises(PinRefused, match=r"12 of 16 blocks in use, and the pin needs 8 more"):
        pin(admin, 2, 8)
    with pytest.raises(PinRefused, match="the pin's own"):
        pin(admin, 2, 8, owner="b", budget=0.1)
    pin(admin, 2, 16, owner="b")
    with pytest.raises(PinRefused, match="the pins' budget in"):
        pin(admin, 3, 8, owner="c")
    assert len(admin.admin.pins.all()) == 2
    assert {event.tier for event in admin.told(PinDenied)} <= {"upper", "lower"}
    assert len(admin.told(PinDenied)) == 3


def test_a_pin_that_is_over_uses_no_budget(admin: AdminHarness) -> None:
    """From that moment on, whether or not the engine has turned since."""
    pin(admin, 1, 16, expires_s=60)
    admin.clock.advance(60)
    pin(admin, 2, 16)
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
        pin(harness, 1, expires_s=1e300)
    pin(harness, 1, expires_s=3650 * 86_400)
    harness.restart()
    assert len(harness.admin.pins.all()) == 1


def test_pins_survive_a_restart_and_go_on_to_hold(admin: AdminHarness) -> None:
    """Exactly those that are not over, with their ends and their tiers."""
    admin.put(admin.tokens(1))
    pin(admin, 1)
    pin(admin, 2, expires_s=10, owner="b")
    (before, _) = admin.admin.pins.all()
    admin.clock.advance(11)
    admin.open()  # a crash: nothing is written down at the end
    (after,) = admin.admin.pins.all()
    assert after == before
    fill(admin, 10, 40)
    assert resident(admin, after.id) == {"device": 0, "upper": 4, "lower": 4}


def test_pins_of_other_weights_lapse(admin: AdminHarness) -> None:
    """Their keys can not be asked for any more."""
    pin(admin, 1)
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
    pin(admin, 1, owner="shared")
    pin(admin, 2, 6, owner="longer")
    pin(admin, 3, owner="alice", salt="alice")
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
    pin(admin, 1)
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
    fill(harness, 10, 40)
    assert harness.store.match(SERVED.keys(harness.tokens(1), "")) == 4
    harness.admin.pins.check_invariants()
    harness.clock.advance(7200)  # two half-lives
    harness.settle()
    assert [tier.pinned for tier in harness.admin.tiers()] == [0, 0]
    assert harness.admin.pins.all() == [], "they are no pins of anybody"


def test_the_hottest_stay_within_their_own_budget(tmp_path: Path) -> None:
    """However many are hot; the named pins' budget is not touched, nor are they counted."""
    harness = AdminHarness(tmp_path, limits=HOT)
    pin(harness, 1, 16)
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


# The file.


def test_a_damaged_file_is_told_put_aside_and_written_anew(
    admin: AdminHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """The store starts; what was there is kept for whoever can make sense of it."""
    pin(admin, 1)
    path = admin.directory / NAME
    damaged = path.read_text().replace('"owner": "a"', '"owner": "b"')
    path.write_text(damaged)
    admin.open()
    assert "is damaged" in caplog.text
    assert admin.admin.pins.all() == []
    assert path.read_text() == damaged, "nothing is written for having been read"
    pin(admin, 2)
    assert path.with_suffix(".json.damaged").read_text() == damaged
    admin.open()
    assert len(admin.admin.pins.all()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"until_ms": 10**18},
        {"until_ms": 1.5},
        {"budget": float("nan")},
        {"budget": 2},
        {"keys": ""},
        {"keys": "AAAA"},
        {"keys": "not base64"},
        {"namespace": "00"},
        {"owner": 5},
        {"tiers": [5]},
        {"more": 1},
    ],
)
def test_entries_that_cannot_be_are_damage(
    tmp_path: Path, change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the check is right: anybody can compute one."""
    harness = AdminHarness(tmp_path)
    pin(harness, 1)
    content = read_content(tmp_path / NAME, version=1)
    assert content is not None
    content["pins"][0] |= change
    (tmp_path / NAME).write_text(text_of(content, version=1))
    assert PinsFile([tmp_path]).pins == []
    assert "is damaged" in caplog.text


@pytest.mark.parametrize("revision", [float("inf"), float("nan"), None, "three"])
def test_a_revision_that_cannot_be_is_damage(
    tmp_path: Path, revision: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A server starts beside it."""
    content = {"revision": revision, "pins": []}
    (tmp_path / NAME).write_text(text_of(content, version=1))
    assert PinsFile([tmp_path]).pins == []
    assert "is damaged" in caplog.text


def test_a_newer_file_is_refused_and_kept(admin: AdminHarness) -> None:
    """A later Pagoda's pins are not overwritten by an earlier one."""
    pin(admin, 1)
    path = admin.directory / NAME
    text = json.dumps(json.loads(path.read_text()) | {"version": 9})
    path.write_text(text)
    with pytest.raises(FormatError, match="version 9"):
        PinsFile([admin.directory])
    assert path.read_text() == text


def test_of_several_drives_the_newest_copy_counts(tmp_path: Path) -> None:
    """One drive that takes the file is enough to survive; a drive that was away has an old one."""
    harness = AdminHarness(tmp_path)
    pin(harness, 1)
    old, gone = tmp_path / "old", tmp_path / "gone"
    old.mkdir()
    (old / NAME).write_text((tmp_path / NAME).read_text())
    pin(harness, 2)
    for order in ([tmp_path, old], [old, tmp_path]):
        found = PinsFile(order)
        assert len(found.pins) == 2
    assert PinsFile([tmp_path, gone]).write(found.text(found.pins))
    assert not PinsFile([gone]).write(found.text(found.pins))
    assert not PinsFile([]).write(found.text(found.pins))


def test_a_pin_that_cannot_be_written_down_holds_and_says_so(tmp_path: Path) -> None:
    """It ends with the process."""
    harness = AdminHarness(tmp_path / "nowhere")
    told: list[bool] = []
    harness.admin.pin(harness.tokens(1), "", PinWish(owner="a"), told.append)
    harness.settle()
    assert told == [False]
    (status,) = harness.admin.pins.all()
    assert not status.durable


def test_a_pin_is_durable_with_the_write_that_has_it(admin: AdminHarness) -> None:
    """Not with one that was on its way when it came."""
    told: list[tuple[str, bool]] = []
    ids = []
    for first, owner in ((1, "a"), (2, "b")):
        ids.append(
            admin.admin.pin(
                admin.tokens(first),
                "",
                PinWish(owner=owner),
                lambda survives, owner=owner: told.append((owner, survives)),
            )
        )
        admin.admin.poll()
    assert admin.executor.step()
    admin.store.poll()
    assert told == [("a", True)]
    assert [one.durable for one in admin.admin.pins.all()] == [True, False]
    admin.settle()
    assert told == [("a", True), ("b", True)]
    assert [one.id for one in PinsFile([admin.directory]).pins] == ids


# All of it at once.


class PinsMachine(RuleBasedStateMachine):
    """Pins, requests, ends, clearings and restarts beside plain dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.admin = AdminHarness(
            Path(self.directory.name), upper=16, lower=32, limits=PinLimits(automatic=0.125)
        )
        self.ends: dict[str, tuple[int, str]] = {}  # until_ms and salt, by pin

    def teardown(self) -> None:
        self.directory.cleanup()

    @rule(
        first=st.integers(0, 5),
        blocks=st.integers(1, 5),
        owner=st.sampled_from("ab"),
        salt=st.sampled_from(["", "s"]),
        seconds=st.integers(1, 40),
    )
    def pin(self, first: int, blocks: int, owner: str, salt: str, seconds: int) -> None:
        wish = PinWish(owner=owner, expires_s=seconds)
        try:
            id = self.admin.admin.pin(
                self.admin.tokens(first, blocks), salt, wish, lambda survives: None
            )
        except PinRefused:
            return
        self.ends[id] = (self.admin.clock.wall_ms() + seconds * 1000, salt)

    @rule(first=st.integers(0, 30), blocks=st.integers(1, 6), salt=st.sampled_from(["", "s"]))
    def use(self, first: int, blocks: int, salt: str) -> None:
        admin = self.admin
        keys = SERVED.keys(admin.tokens(first, blocks), salt)
        admin.admin.pins.used(SERVED.namespace_of(salt), keys)
        pinned = [
            (level, set(level.residency.pinned.keys), set(dict(level.state.published())))
            for level in admin.store.levels()
        ]
        overruled = len(admin.told(Overruled))
        admin.put(admin.tokens(first, blocks), salt=salt)
        admin.settle()
        if len(admin.told(Overruled)) == overruled:
            for level, names, before in pinned:
                still = set(level.residency.pinned.keys) & names & before
                lost = {key for key in still if level.state.slot_of(key) is None}
                assert not lost, f"{level.name}: a pinned block went, and it was not counted"

    @rule(seconds=st.integers(1, 20))
    def wait(self, seconds: int) -> None:
        self.admin.clock.advance(seconds)
        self.admin.settle()

    @rule(owner=st.sampled_from("ab"))
    def unpin(self, owner: str) -> None:
        ids = {one.id for one in self.admin.admin.pins.all() if one.owner == owner}
        assert self.admin.admin.pins.remove(None, owner=owner) == len(ids)
        self.ends = {id: end for id, end in self.ends.items() if id not in ids}

    @rule(salt=st.sampled_from([None, "s"]))
    def clear(self, salt: str | None) -> None:
        self.admin.clear(Scope(salt=salt) if salt else Scope())
        self.ends = {id: e for id, e in self.ends.items() if salt and e[1] != salt}

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        self.admin.settle()
        if crash:
            self.admin.open()
        else:
            self.admin.restart()

    @invariant()
    def adds_up(self) -> None:
        now_ms = self.admin.clock.wall_ms()
        expected = {id: end for id, (end, _) in self.ends.items() if end > now_ms}
        found = {one.id: round(one.until_s * 1000) for one in self.admin.admin.pins.all()}
        assert found == expected, "pins that are over, or gone before their time"
        self.admin.admin.pins.check_invariants()
        self.admin.store.check_invariants()


def test_pins_add_up_whatever_happens() -> None:
    """Random walks: ends are kept, budgets hold, restarts lose nothing that was settled."""
    run_state_machine_as_test(
        PinsMachine, settings=settings(max_examples=60, stateful_step_count=25, deadline=None)
    )
