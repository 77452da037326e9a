"""Pins: prefixes that an owner wants kept, for a while and within a budget.

A pin names a prefix by its keys, so that it also holds for blocks that are not there yet. Each
tier grants a pin whole or not at all: its own budget, its owner's and that of all pins are
shares of the tier's slots, and a block that several pins name counts once in each sum. Once a
tier has granted a pin it goes on to, until the pin ends; a pin that no tier in memory grants is
refused. No pin is without an end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pagoda.core.durations import human_duration
from pagoda.core.errors import PinRefused, RequestError
from pagoda.core.identity import Key, NamespaceId

MOST_PINS = 1024
MOST_KEYS = 262_144  # of all pins together: they are written down with each change
_MOST_S = 10 * 365 * 86_400.0
_DOMAIN = b"pagoda.pin.v1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinLimits:
    """What pins may have: shares of each tier's slots, for all pins, for those of one owner and
    for the hottest blocks, which are pinned without being asked for; and times, in seconds.
    `longest_s` 0 is ten years."""

    total: float = 0.5
    owner: float = 0.25
    automatic: float = 0.0
    expires_s: float = 86_400.0
    longest_s: float = 30 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A tier as pins see it. `memory`: what it holds can be had at once."""

    tier: str
    slots: int
    memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A prefix that is kept. `share` is its own budget; `until_ms`, since the epoch, its end;
    `generation` names the weights that its keys belong to; `tiers` are those that grant it."""

    owner: str
    tenant: str
    namespace: NamespaceId
    generation: str
    keys: tuple[Key, ...]
    share: float
    until_ms: int
    tiers: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """16 hex digits. An owner who pins a prefix again renews the pin that is there."""
        name = self.owner.encode() + b"\0" + self.namespace + self.keys[-1]
        return hashlib.sha256(_DOMAIN + name).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinWish:
    """What an owner asks for beside the prefix: for how long (None: the usual time), and within
    which share of a tier (None: the owner's)."""

    owner: str
    expires_s: float | None = None
    budget: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinPlace:
    """A pin in one tier: whether the tier grants it, and how many of its blocks are there."""

    tier: str
    granted: bool
    resident: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinStatus:
    """A pin as its owner is told of it. `durable`: it survives a restart."""

    id: str
    owner: str
    tenant: str
    namespace: str
    blocks: int
    tokens: int
    budget: float
    until_s: float
    durable: bool
    places: tuple[PinPlace, ...]


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
    """What one tier grants, filled pin by pin."""

    room: Room
    limits: PinLimits
    ids: set[str] = field(default_factory=set)
    keys: set[Key] = field(default_factory=set)
    owners: dict[str, set[Key]] = field(default_factory=dict)

    def shortage(self, pin: Pin) -> Shortage | None:
        """The first budget that would be exceeded."""
        keys = set(pin.keys)
        own = self.owners.get(pin.owner, set())
        sums = [
            (f"{pin.owner}'s", "pins.owner", self.limits.owner, own),
            ("the pins'", "pins.total", self.limits.total, self.keys),
        ]
        if pin.share < self.limits.owner:  # else its owner's is the one that has to rise
            sums.insert(0, ("the pin's own", "the pin's --budget", pin.share, set()))
        for whose, raised_by, share, used in sums:
            limit = blocks_of(share, self.room)
            more = len(keys - used)  # their union would copy all that is granted
            if len(used) + more > limit:
                return Shortage(whose, raised_by, len(used), more, limit)
        return None

    def take(self, pin: Pin) -> None:
        """Grant it, if it fits."""
        if self.shortage(pin) is None:
            self.ids.add(pin.id)
            self.keys.update(pin.keys)
            self.owners.setdefault(pin.owner, set()).update(pin.keys)


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

    def add(self, pin: Pin) -> Pin:
        """Pin, or renew what is pinned: it then keeps its age and the tiers that still grant it.
        Raises PinRefused, and changes nothing, when no memory does."""
        before = self._pins.get(pin.id)
        others = {id: other for id, other in self._pins.items() if other is not before}
        _check_count(others.values(), pin)
        kept = replace(pin, tiers=before.tiers if before else frozenset())
        self._refuse_unless_granted(others.values(), kept)
        self._pins[pin.id] = kept  # in place, when it was there
        self._settle()
        return self._pins[pin.id]

    def drop(self, goes: Callable[[Pin], bool]) -> list[Pin]:
        """End the pins that this holds for; returns them."""
        gone = [pin for pin in self._pins.values() if goes(pin)]
        if gone:
            for pin in gone:
                del self._pins[pin.id]
            self._settle()
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
            assert sums.pop("") == self._grants[room.tier].keys, "keys without a pin"
            for owner, keys in sums.items():
                assert len(keys) <= blocks_of(self._limits.owner, room), f"{owner}'s budget"
            assert len(self.keys(room.tier)) <= blocks_of(self._limits.total, room), "all pins'"

    def _settle(self) -> None:
        """Grant anew: what a tier granted before it grants again first."""
        self._grants = {room.tier: self._granted(room, self._pins.values()) for room in self._rooms}
        for id, pin in self._pins.items():
            tiers = frozenset(tier for tier, grant in self._grants.items() if id in grant.ids)
            self._pins[id] = replace(pin, tiers=tiers)

    def _granted(self, room: Room, pins: Iterable[Pin]) -> _Grant:
        grant = _Grant(room, self._limits)
        for pin in sorted(pins, key=lambda pin: room.tier not in pin.tiers):  # else by age
            grant.take(pin)
        return grant

    def _refuse_unless_granted(self, others: Iterable[Pin], pin: Pin) -> None:
        memory = sorted((room for room in self._rooms if room.memory), key=lambda r: -r.slots)
        all_pins = [*others, pin]
        grants = [self._granted(room, all_pins) for room in memory]
        if not any(pin.id in grant.ids for grant in grants):
            raise _refusal(memory[0], grants[0].shortage(pin))


def blocks_of(share: float, room: Room) -> int:
    """A share of a tier, in whole blocks."""
    return int(share * room.slots)


def checked(wish: PinWish, limits: PinLimits) -> tuple[float, float]:
    """Seconds and share of a wish. RequestError for a time without end, or longer than any may
    be; and for what is no share or no name."""
    seconds = limits.expires_s if wish.expires_s is None else wish.expires_s
    share = limits.owner if wish.budget is None else wish.budget
    if not 0 < seconds < float("inf"):
        raise _invalid("a pin ends some time after now", "name a time, such as 2h")
    longest_s = min(limits.longest_s or _MOST_S, _MOST_S)
    if seconds > longest_s:
        raise _invalid(
            f"a pin lasts {human_duration(longest_s)} at most, and {human_duration(seconds)} are "
            "asked for",
            "ask for less and pin again before it ends"
            + (", or raise pins.longest" if longest_s < _MOST_S else ""),
        )
    if not 0 < share <= 1:
        raise _invalid("a budget is a share of a tier", "name one above 0 and up to 1")
    if not 0 < len(wish.owner) <= 64 or not wish.owner.isprintable():
        raise _invalid("an owner has 1 to 64 printable characters", "name another")
    return seconds, share


def _invalid(message: str, remedy: str) -> RequestError:
    return RequestError(message, param="pin", code="invalid_value", remedy=remedy)


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
