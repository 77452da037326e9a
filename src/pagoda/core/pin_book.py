"""All pins of an engine, and what each of its tiers grants of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pagoda.core.errors import PinRefused, RequestError
from pagoda.core.identity import Key
from pagoda.core.pins import MOST_KEYS, MOST_PINS, Pin, PinLimits, Room, blocks_of


@dataclass(frozen=True, slots=True)
class Shortage:
    """A budget that a pin does not fit: whose it is, what raises it, and blocks used, asked for
    and allowed."""

    whose: str
    raised_by: str
    used: int
    asked: int
    limit: int


@dataclass(slots=True)
class _Grant:
    """What one tier grants, filled pin by pin: keys, with how many of its pins name each."""

    room: Room
    limits: PinLimits
    ids: set[str] = field(default_factory=set)
    keys: Counter[Key] = field(default_factory=Counter)
    owners: dict[str, Counter[Key]] = field(default_factory=dict)

    def shortage(self, pin: Pin) -> Shortage | None:
        """The first budget that would be exceeded."""
        keys = set(pin.keys)
        own: Counter[Key] = self.owners.get(pin.owner, Counter())
        sums = [
            (f"{pin.owner}'s", "pins.owner", self.limits.owner, own),
            ("the pins'", "pins.total", self.limits.total, self.keys),
        ]
        if pin.share < self.limits.owner:  # else its owner's is the one that has to rise
            sums.insert(0, ("the pin's own", "the pin's --budget", pin.share, Counter()))
        for whose, raised_by, share, used in sums:
            limit = blocks_of(share, self.room)
            more = sum(key not in used for key in keys)
            if len(used) + more > limit:
                return Shortage(whose, raised_by, len(used), more, limit)
        return None

    def take(self, pin: Pin) -> None:
        """Grant it, if it fits."""
        if self.shortage(pin) is None:
            self.ids.add(pin.id)
            keys = set(pin.keys)
            self.keys.update(keys)
            self.owners.setdefault(pin.owner, Counter()).update(keys)

    def give_back(self, pin: Pin) -> None:
        """Grant it no more."""
        self.ids.remove(pin.id)
        own = self.owners[pin.owner]
        for counts in (self.keys, own):
            for key in set(pin.keys):
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]
        if not own:
            del self.owners[pin.owner]  # whoever sends requests chooses their names


class PinBook:
    """All pins, the oldest first, and what each tier of `rooms` grants of them."""

    def __init__(self, rooms: Sequence[Room], limits: PinLimits, pins: Iterable[Pin] = ()) -> None:
        assert any(room.memory for room in rooms), "there is memory to pin in"
        self._rooms = rooms
        self._limits = limits
        self._pins = {pin.id: pin for pin in pins}
        self._grants: dict[str, _Grant] = {}
        self._settle()

    def pins(self) -> list[Pin]:
        """All of them, the oldest first."""
        return list(self._pins.values())

    def find(self, id: str) -> Pin | None:
        """The pin of that name."""
        return self._pins.get(id)

    def keys(self, tier: str) -> frozenset[Key]:
        """The keys that a tier keeps."""
        return frozenset(self._grants[tier].keys)

    def keeps(self, tier: str, key: Key) -> bool:
        """Whether a tier keeps a key."""
        return key in self._grants[tier].keys

    def add(self, pin: Pin) -> Pin:
        """Pin, or renew what is pinned: it then keeps its age and the tiers that still grant it.
        Raises PinRefused, and changes nothing, when no memory does."""
        before = self._pins.get(pin.id)
        others = {id: other for id, other in self._pins.items() if other is not before}
        _check_count(others.values(), pin)
        if before is None:
            self._grant_last(pin)
        elif (before.keys, before.share) == (pin.keys, pin.share):
            self._pins[pin.id] = replace(pin, tiers=before.tiers)
        else:
            kept = replace(pin, tiers=before.tiers)
            self._refuse_unless_granted(others.values(), kept)
            self._pins[pin.id] = kept  # in place
            self._settle()
        return self._pins[pin.id]

    def drop(self, goes: Callable[[Pin], bool]) -> list[Pin]:
        """End the pins that this holds for; returns them."""
        gone = [pin for pin in self._pins.values() if goes(pin)]
        for pin in gone:
            del self._pins[pin.id]
            for tier in pin.tiers:
                self._grants[tier].give_back(pin)
        if gone:
            self._grant_lacking()
        return gone

    def next_end_ms(self) -> int | None:
        """When the next pin ends."""
        return min((pin.until_ms for pin in self._pins.values()), default=None)

    def check_invariants(self) -> None:
        """No budget is exceeded in any tier, and what a pin says of its tiers is so."""
        for room in self._rooms:
            granted = [pin for pin in self._pins.values() if room.tier in pin.tiers]
            assert {pin.id for pin in granted} == self._grants[room.tier].ids
            sums = {"": {key for pin in granted for key in pin.keys}}
            for pin in granted:
                sums.setdefault(pin.owner, set()).update(pin.keys)
                assert len(set(pin.keys)) <= blocks_of(pin.share, room), "a pin's own budget"
            assert sums.pop("") == self._grants[room.tier].keys.keys(), "keys without a pin"
            assert sums.keys() == self._grants[room.tier].owners.keys(), "owners without a pin"
            for owner, keys in sums.items():
                assert len(keys) <= blocks_of(self._limits.owner, room), f"{owner}'s budget"
            assert len(self.keys(room.tier)) <= blocks_of(self._limits.total, room), "all pins'"

    def _settle(self) -> None:
        """Grant anew: what a tier granted before it grants again first."""
        self._grants = {room.tier: self._granted(room, self._pins.values()) for room in self._rooms}
        for id, pin in self._pins.items():
            self._pins[id] = self._told(pin)

    def _grant_last(self, pin: Pin) -> None:
        """A new pin comes after all others: what they have been granted stays as it is."""
        memory = self._memory()
        grants = [self._grants[room.tier] for room in memory]
        shortages = [grant.shortage(pin) for grant in grants]
        if None not in shortages:
            raise _refusal(memory[0], shortages[0])
        for grant in self._grants.values():
            grant.take(pin)
        self._pins[pin.id] = self._told(pin)

    def _grant_lacking(self) -> None:
        """There is room again: what lacked it may have it, the oldest first."""
        for id, pin in self._pins.items():
            lacking = self._grants.keys() - pin.tiers
            for tier in lacking:
                self._grants[tier].take(pin)
            if lacking:
                self._pins[id] = self._told(pin)

    def _told(self, pin: Pin) -> Pin:
        tiers = (tier for tier, grant in self._grants.items() if pin.id in grant.ids)
        return replace(pin, tiers=frozenset(tiers))

    def _memory(self) -> list[Room]:
        """The rooms in memory, the largest first."""
        return sorted((room for room in self._rooms if room.memory), key=lambda r: -r.slots)

    def _granted(self, room: Room, pins: Iterable[Pin]) -> _Grant:
        grant = _Grant(room, self._limits)
        for pin in sorted(pins, key=lambda pin: room.tier not in pin.tiers):  # else by age
            grant.take(pin)
        return grant

    def _refuse_unless_granted(self, others: Iterable[Pin], pin: Pin) -> None:
        memory = self._memory()
        all_pins = [*others, pin]
        grants = [self._granted(room, all_pins) for room in memory]
        if not any(pin.id in grant.ids for grant in grants):
            raise _refusal(memory[0], grants[0].shortage(pin))


def _check_count(others: Iterable[Pin], pin: Pin) -> None:
    some = list(others)
    keys = sum(len(other.keys) for other in some) + len(pin.keys)
    if len(some) >= MOST_PINS or keys > MOST_KEYS:
        raise RequestError(
            f"there are {len(some)} pins of {keys - len(pin.keys)} blocks; at most {MOST_PINS} of "
            f"{MOST_KEYS} are kept",
            param="pin",
            code="pin_budget_exceeded",
            remedy="unpin what is not needed any more",
        )


def _refusal(room: Room, shortage: Shortage | None) -> PinRefused:
    assert shortage is not None, "a pin that fits is not refused"
    others = "unpin something, " if shortage.used else ""
    return PinRefused(
        f"{shortage.whose} budget in {room.tier} has {shortage.used} of {shortage.limit} blocks in "
        f"use, and the pin needs {shortage.asked} more",
        remedy=f"{others}pin a shorter prefix, or raise {shortage.raised_by}",
        tier=room.tier,
        used=shortage.used,
        asked=shortage.asked,
        limit=shortage.limit,
    )
