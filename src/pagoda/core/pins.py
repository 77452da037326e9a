"""Pins: prefixes that an owner wants kept, for a while and within a budget.

A pin names a prefix by its keys, so that it also holds for blocks that are not there yet. Each
tier grants a pin whole or not at all: its own budget, its owner's and that of all pins are
shares of the tier's slots, and a block that several pins name counts once in each sum. Once a
tier has granted a pin it goes on to, until the pin ends; a pin that no tier in memory grants is
refused. No pin is without an end.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pagoda.core.durations import human_duration
from pagoda.core.errors import RequestError
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
