"""The book of pins against a naive model, and the hottest blocks against plain counting."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pagoda.core import pin_book as module
from pagoda.core.errors import PinRefused, RequestError
from pagoda.core.hottest import Hottest
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.pin_book import PinBook
from pagoda.core.pins import Pin, PinLimits, PinWish, Room, blocks_of, checked

ROOMS = (
    Room(tier="device", slots=10, memory=True),
    Room(tier="host", slots=24, memory=True),
    Room(tier="drive", slots=40, memory=False),
)
LIMITS = PinLimits(total=0.5, owner=0.3)
SPACE = NamespaceId(bytes(32))


def keys(chain: int, blocks: int) -> tuple[Key, ...]:
    """The first blocks of a chain; chains share nothing."""
    return tuple(Key(bytes([chain, at]) + bytes(30)) for at in range(blocks))


def pin(owner: str, chain: int, blocks: int, *, share: float = 1.0, until_ms: int = 1000) -> Pin:
    """A pin under the weights `g`."""
    return Pin(
        owner=owner,
        tenant="shared",
        namespace=SPACE,
        generation="g",
        keys=keys(chain, blocks),
        share=share,
        until_ms=until_ms,
    )


class BookMachine(RuleBasedStateMachine):
    """A PinBook; every sum is taken anew from the pins that should be there."""

    def __init__(self) -> None:
        super().__init__()
        self.book = PinBook(ROOMS, LIMITS)
        self.there: dict[str, Pin] = {}
        self.granted: dict[str, frozenset[str]] = {}

    @rule(
        owner=st.sampled_from("ab"),
        chain=st.integers(0, 5),
        blocks=st.integers(1, 14),
        share=st.sampled_from([0.1, 0.25, 1.0]),
        until_ms=st.integers(1, 100),
    )
    def add(self, owner: str, chain: int, blocks: int, share: float, until_ms: int) -> None:
        """A pin is granted where it fits, and refused where no memory has room."""
        new = pin(owner, chain, blocks, share=share, until_ms=until_ms)
        fits = [room for room in ROOMS if room.memory and self.has_room(room, new)]
        try:
            got = self.book.add(new)
        except PinRefused as refused:
            told = refused
        else:
            told = None
            self.there[got.id] = new
        assert (told is None) == bool(fits), "refused beside room, or granted beyond a budget"
        assert told is None or told.used + told.asked > told.limit, "the error's sum fits"

    def has_room(self, room: Room, new: Pin) -> bool:
        """Whether the sums hold with one pin more, counting blocks once."""
        granted = [
            other for other in self.book.pins() if room.tier in other.tiers and other.id != new.id
        ]
        every = {key for other in granted for key in other.keys} | set(new.keys)
        own = {k for other in granted if other.owner == new.owner for k in other.keys}
        return (
            len(new.keys) <= int(new.share * room.slots)
            and len(own | set(new.keys)) <= int(LIMITS.owner * room.slots)
            and len(every) <= int(LIMITS.total * room.slots)
        )

    @rule(now_ms=st.integers(1, 100))
    def expire(self, now_ms: int) -> None:
        """What is over goes, at once, and nothing else does."""
        gone = self.book.drop(lambda pin: pin.until_ms <= now_ms)
        expected = {id for id, pin in self.there.items() if pin.until_ms <= now_ms}
        assert {pin.id for pin in gone} == expected
        for id in expected:
            del self.there[id]
            self.granted.pop(id, None)
        ends = [pin.until_ms for pin in self.there.values()]
        assert self.book.next_end_ms() == min(ends, default=None)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        """Ending the last pin of a block frees it."""
        id = data.draw(st.sampled_from(sorted(self.there)))
        self.book.drop(lambda pin: pin.id == id)
        del self.there[id]
        self.granted.pop(id, None)
        kept = {key for pin in self.there.values() for key in pin.keys}
        assert all(self.book.keys(room.tier) <= kept for room in ROOMS)

    @rule()
    def reopen(self) -> None:
        """A book made of the pins of another grants what that one did."""
        again = PinBook(ROOMS, LIMITS, self.book.pins())
        assert again.pins() == self.book.pins()
        for room in ROOMS:
            assert again.keys(room.tier) == self.book.keys(room.tier)
        self.book = again

    @invariant()
    def adds_up(self) -> None:
        """Budgets hold, ends are kept, and a tier that granted a pin still does."""
        self.book.check_invariants()
        assert {pin.id for pin in self.book.pins()} == set(self.there)
        for pin in self.book.pins():
            before = self.granted.get(pin.id, frozenset())
            renewed = self.there[pin.id].share
            lasting = {r.tier for r in ROOMS if len(pin.keys) <= int(renewed * r.slots)}
            assert before & lasting <= pin.tiers, "a grant was taken back"
            self.granted[pin.id] = pin.tiers


def test_the_book_adds_up() -> None:
    """Random pins, renewals, ends and restarts."""
    run_state_machine_as_test(
        BookMachine, settings=settings(max_examples=200, stateful_step_count=30)
    )


def test_a_refusal_names_whose_budget_and_the_sum() -> None:
    """The largest memory is told of, in blocks."""
    book = PinBook(ROOMS, LIMITS)
    book.add(pin("a", 0, 5))
    with pytest.raises(PinRefused, match="a's budget in host has 5 of 7 blocks in use") as refused:
        book.add(pin("a", 1, 4))
    assert (refused.value.used, refused.value.asked, refused.value.limit) == (5, 4, 7)
    with pytest.raises(PinRefused, match="the pin's own budget in host"):
        book.add(pin("b", 1, 3, share=0.1))
    assert [found.owner for found in book.pins()] == ["a"], "a refusal changes nothing"


def refusal_of(book: PinBook, asked: Pin) -> PinRefused | None:
    """What pinning it raises."""
    try:
        book.add(asked)
    except PinRefused as refused:
        return refused
    return None


@given(
    st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 24),
    st.integers(1, 24),
)  # fmt: skip
def test_raising_what_a_refusal_names_lifts_that_limit(
    share: float, owner: float, total: float, before: int, blocks: int
) -> None:
    """Whoever follows the advice as far as it goes is not told of the same limit again."""
    limits = {"share": share, "owner": owner, "total": total}
    names = {"the pin's --budget": "share", "pins.owner": "owner", "pins.total": "total"}
    room = Room(tier="host", slots=24, memory=True)
    for _ in range(len(limits) + 1):
        old = Pin(
            owner="a", tenant="t", namespace=SPACE, generation="g", keys=keys(0, before + 1),
            share=1.0, until_ms=1,
        )  # fmt: skip
        book = PinBook(
            [room], PinLimits(owner=limits["owner"], total=limits["total"]), [old] * (before > 0)
        )
        refused = refusal_of(book, pin("a", 1, blocks, share=limits["share"]))
        if refused is None:
            return
        assert ("unpin" in refused.remedy) == (refused.used > 0)
        (raised,) = [limit for name, limit in names.items() if name in refused.remedy]
        if limits[raised] == 1.0:
            assert refused.used + refused.asked > room.slots, "all of the tier is too little"
            return
        limits[raised] = 1.0
    pytest.fail("the advice goes round in a circle")


@pytest.mark.parametrize(
    ("longest_s", "asked_s", "told"),
    [
        (30 * 86_400, 60 * 86_400, "lasts 30d at most, and 60d are"),
        (7140, 7141, "lasts 1h 59m at most, and 1h 59m 1s are"),
        (0, 1e300, "lasts 3650d at most"),
    ],
)
def test_a_time_too_long_is_told_as_people_say_it(
    longest_s: float, asked_s: float, told: str
) -> None:
    """Both times, exactly; what no setting can raise is not advised."""
    with pytest.raises(RequestError, match=told) as refused:
        checked(PinWish(owner="a", expires_s=asked_s), PinLimits(longest_s=longest_s))
    assert ("pins.longest" in refused.value.remedy) == (longest_s > 0)


def test_a_renewed_pin_has_one_entry() -> None:
    """The same prefix of the same owner: its end moves, nothing is counted twice."""
    book = PinBook(ROOMS, LIMITS)
    first = book.add(pin("a", 0, 7, until_ms=1))
    again = book.add(pin("a", 0, 7, until_ms=9))
    assert first.id == again.id
    assert [found.until_ms for found in book.pins()] == [9]
    assert book.add(pin("b", 0, 7)).id != first.id, "an owner each"


def test_a_pin_is_not_renewed_within_a_budget_that_it_exceeds() -> None:
    """It is refused, and stays as it was."""
    book = PinBook(ROOMS, LIMITS)
    first = book.add(pin("a", 0, 7))
    with pytest.raises(PinRefused, match="the pin's own budget in host"):
        book.add(pin("a", 0, 7, share=0.1, until_ms=9))
    assert book.pins() == [first]


def test_a_renewed_pin_keeps_its_place_before_older_ones_that_wait() -> None:
    """A tier that grants a pin goes on to, though an older one would like its room."""
    rooms = (Room(tier="device", slots=10, memory=True), Room(tier="host", slots=40, memory=True))
    book = PinBook(rooms, PinLimits(total=0.5, owner=0.5))
    book.add(pin("c", 0, 3))
    waits = book.add(pin("b", 1, 4))
    book.add(pin("a", 2, 2))
    book.drop(lambda pin: pin.owner == "c")
    assert waits.tiers == {"host"}
    assert book.add(pin("a", 2, 2)).tiers == {"device", "host"}


def test_a_smaller_tier_grants_what_it_can_and_loses_no_pin() -> None:
    """After a restart with less memory a pin may wait, and is granted once there is room."""
    book = PinBook(ROOMS, LIMITS)
    for owner, chain in (("a", 0), ("b", 1)):
        book.add(pin(owner, chain, 6))
    less = [
        replace(room, slots=20) if room.tier == "host" else replace(room, slots=4) for room in ROOMS
    ]
    small = PinBook(less, LIMITS, book.pins())
    small.check_invariants()
    assert [found.tiers for found in small.pins()] == [{"host"}, frozenset()]
    small.drop(lambda pin: pin.owner == "a")
    assert [found.tiers for found in small.pins()] == [{"host"}]


def test_there_is_an_end_to_how_many_pins_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the file is made for is refused; a renewal is not one more."""
    monkeypatch.setattr(module, "MOST_PINS", 2)
    book = PinBook(ROOMS, LIMITS)
    book.add(pin("a", 0, 1))
    book.add(pin("b", 1, 1))
    with pytest.raises(RequestError, match="at most 2"):
        book.add(pin("c", 2, 1))
    book.add(pin("b", 1, 1))


@given(st.floats(0, 1), st.integers(0, 1000))
def test_a_share_is_never_more_than_it_says(share: float, slots: int) -> None:
    """Blocks are whole; what is left over is nobody's."""
    room = Room(tier="t", slots=slots, memory=True)
    assert blocks_of(share, room) <= share * slots < blocks_of(share, room) + 1


USES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.floats(0, 5)), min_size=1, max_size=40
)


@given(USES, st.integers(0, 8), st.floats(0.5, 4))
def test_the_hottest_are_those_that_plain_counting_finds(
    uses: list[tuple[int, int, float]], count: int, least: float
) -> None:
    """Each use halves with every half-life; parents come before their blocks."""
    hottest = Hottest(limit=1000, half_life_s=2.0)
    now_s, plain = 100.0, dict[Key, list[float]]()
    for chain, blocks, wait_s in uses:
        now_s += wait_s
        hottest.used(SPACE, keys(chain, blocks), now_s)
        for key in keys(chain, blocks):
            plain.setdefault(key, []).append(now_s)
    heat = {key: sum(2 ** ((at - now_s) / 2.0) for at in times) for key, times in plain.items()}
    top = hottest.top(count, now_s, least=least, but=())
    assert len(top) == len(set(top))
    sure = [key for key, uses in heat.items() if uses > least * 1.000001]
    possible = [key for key, uses in heat.items() if uses > least * 0.999999]
    assert min(count, len(sure)) <= len(top) <= min(count, len(possible))
    left = [heat[key] for key in sure if key not in top]
    assert all(heat[key] >= max(left, default=0) * 0.999999 for key in top)
    for key in top:
        chain, depth = key[0], key[1]
        assert all(parent in top for parent in keys(chain, depth)), "prefixes, without a gap"


def test_a_memory_that_is_full_forgets_the_colder_half() -> None:
    """And stays within its limit, whatever comes."""
    hottest = Hottest(limit=8)
    for _ in range(3):
        hottest.used(SPACE, keys(0, 2), 0.0)
    for chain in range(1, 50):
        hottest.used(SPACE, keys(chain, 3), 0.0)
        assert len(hottest) <= 8
    assert hottest.top(2, 0.0, least=3, but=()) == list(keys(0, 2))


def test_uses_fade_for_ever() -> None:
    """Years do not overflow, and what is old is not hot."""
    hottest = Hottest(limit=8, half_life_s=1.0)
    hottest.used(SPACE, keys(0, 1), 0.0)
    assert hottest.top(1, 1e9, least=0.01, but=()) == []
    for at_s in (1e9, 1e9 + 1):
        hottest.used(SPACE, keys(1, 1), at_s)
    assert hottest.top(9, 1e9 + 1, least=1.5, but=()) == list(keys(1, 1))
    assert math.isclose(len(hottest), 1)


def test_a_cleared_namespace_is_not_hot_any_more() -> None:
    """What a tenant had cleared is not remembered here either."""
    other = NamespaceId(bytes([1]) * 32)
    hottest = Hottest(limit=8)
    hottest.used(SPACE, keys(0, 1), 0.0)
    hottest.used(other, keys(1, 1), 0.0)
    hottest.forget({SPACE})
    assert hottest.top(9, 0.0, least=1, but=()) == list(keys(1, 1))
    hottest.forget(None)
    assert len(hottest) == 0
