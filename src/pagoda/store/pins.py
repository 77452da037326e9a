"""Pins in the live store: held against the tiers, ended in time, written down with each change.

Look-ups, probes and requests renew no pin: only pinning again does. Blocks that a pin names are
kept wherever they are and wherever they come, and a bad one is pinned again once it is computed
again. `store.pins_hot` pins without being asked, `store.pins_keeper` writes down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pagoda.core.errors import PinRefused, RequestError
from pagoda.core.events import Overruled, PinBegan, PinDenied, PinEnd, PinsEnded
from pagoda.core.holdings import Selection, tenant_id
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.pin_book import PinBook
from pagoda.core.pins import Pin, PinLimits, PinPlace, PinStatus, PinWish, Room, checked
from pagoda.core.residency import Residency
from pagoda.store.pins_file import PinsFile
from pagoda.store.pins_hot import HotPins
from pagoda.store.pins_keeper import PinsKeeper, Told
from pagoda.store.scopes import Served
from pagoda.store.store import Store

DEVICE = "device"


class Pinnable(Protocol):
    """The engine's own blocks, as far as they are pinned."""

    @property
    def residency(self) -> Residency:
        """What the device holds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PinPlan:
    """What pins may have, and where they are kept over restarts."""

    limits: PinLimits = field(default_factory=PinLimits)
    file: PinsFile = field(default_factory=PinsFile)


class Pins:
    """Owner's thread. `start` comes before the first request, `poll` with each turn."""

    def __init__(self, store: Store, device: Pinnable, plan: PinPlan, *, served: Served) -> None:
        self._served = served
        self._limits = plan.limits
        self._wall_ms = store.runtime.wall_ms
        self._observer = store.runtime.observer
        self._tiers: dict[str, list[Residency]] = {DEVICE: [device.residency]}
        self._rooms = [Room(tier=DEVICE, slots=device.residency.state.slots, memory=True)]
        for rank in store.ranks():
            self._tiers[rank.name] = [level.residency for level in rank.levels]
            slots = sum(level.state.slots for level in rank.levels)
            memory = all(level.memory for level in rank.levels)
            self._rooms.append(Room(tier=rank.name, slots=slots, memory=memory))
        self._book = PinBook(self._rooms, plan.limits, plan.file.pins)
        self._hot = HotPins(self._rooms, plan.limits.automatic, clock=store.runtime.clock)
        self._keeper = PinsKeeper(plan.file, store.orders)
        self._overruled: dict[Residency, int] = {}

    def start(self) -> None:
        """Pin what was pinned before the restart, but for other weights and what is over."""
        self._end(lambda pin: pin.generation != self._served.generation, PinEnd.LAPSED)
        self._expire()
        self._apply()

    # What owners ask for.

    def add(self, prompt: Sequence[int], salt: str, wish: PinWish, told: Told) -> str:
        """Pin a prompt's full blocks, there or not; returns the pin's id. `told` is called once
        it is settled whether the pin survives a restart. RequestError, of which PinRefused, for
        what is not pinned."""
        seconds, share = checked(wish, self._limits)
        pin = Pin(
            owner=wish.owner,
            tenant=tenant_id(salt),
            namespace=self._served.namespace_of(salt),
            generation=self._served.generation,
            keys=tuple(self._keys(prompt, salt)),
            share=share,
            until_ms=self._wall_ms() + int(seconds * 1000),
        )
        self._expire()  # what is over holds nothing
        try:
            self._book.add(pin)
        except PinRefused as refused:
            self._observer(PinDenied(tier=refused.tier))
            raise
        self._apply()
        self._keeper.began(pin.id, told)
        self._observer(PinBegan(blocks=len(pin.keys)))
        return pin.id

    def remove(self, id: str | None, *, owner: str | None) -> int:
        """End a pin, or all of an owner's; returns how many. RequestError for one that is not
        there, and when neither is named."""
        if id is None and owner is None:
            raise RequestError("name a pin or an owner", param="owner", code="invalid_value")
        self._expire()
        gone = self._end(
            lambda pin: id in (None, pin.id) and owner in (None, pin.owner), PinEnd.REMOVED
        )
        if id is not None and not gone:
            raise RequestError(
                "there is no such pin",
                param="id",
                code="not_found",
                remedy="`pagoda pin ls` shows those that are; they end by themselves, too",
            )
        return gone

    def all(self) -> list[PinStatus]:
        """Every pin, the oldest first. Changes nothing but that what is over ends."""
        self._expire()
        return [self._status(pin) for pin in self._book.pins()]

    def status(self, id: str) -> PinStatus | None:
        """How a pin stands; None when there is none of that id."""
        pin = self._book.find(id)
        return None if pin is None else self._status(pin)

    # What happens.

    def forget(self, selection: Selection) -> None:
        """Blocks are cleared: what names them is no pin any more. An age is no name."""
        if selection.before_s is not None:
            return
        self._end(lambda pin: _named(selection, pin), PinEnd.CLEARED)
        self._hot.forget(selection.namespaces)
        self._review()

    def used(self, namespace: NamespaceId, keys: Sequence[Key]) -> None:
        """A request for a prefix came. By this alone it is judged what is hottest."""
        self._hot.used(namespace, keys)

    def poll(self) -> None:
        """End what is over, judge what is hottest, write down what has changed."""
        self._expire()
        self._review()
        self._tell_overruled()
        self._keeper.poll(self._book.pins)

    def close(self) -> None:
        """Write down what has changed. Blocks on I/O."""
        self._keeper.close(self._book.pins())

    def stats(self) -> dict[str, float]:
        """Pins, and pinned blocks that are in each tier."""
        blocks = {
            f"{tier}_blocks_pinned": sum(one.pinned.count() for one in residencies)
            for tier, residencies in self._tiers.items()
        }
        return {"pins": len(self._book.pins()), **blocks}

    def check_invariants(self) -> None:
        """Budgets hold, and each tier keeps what is granted in it and what is hot."""
        self._book.check_invariants()
        self._hot.check_invariants()
        for tier, residencies in self._tiers.items():
            for residency in residencies:
                assert residency.pinned.keys == self._book.keys(tier) | self._hot.keys(tier)
                residency.pinned.check_invariants()

    # Helpers.

    def _keys(self, prompt: Sequence[int], salt: str) -> list[Key]:
        keys = self._served.keys(prompt, salt)
        if not keys:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens, and a block {self._served.block_tokens}",
                param="prompt",
                code="invalid_value",
                remedy="pin a longer prefix: blocks are whole",
            )
        return keys

    def _expire(self) -> None:
        end_ms, now_ms = self._book.next_end_ms(), self._wall_ms()
        if end_ms is not None and end_ms <= now_ms:
            self._end(lambda pin: pin.until_ms <= now_ms, PinEnd.EXPIRED)

    def _end(self, goes: Callable[[Pin], bool], reason: PinEnd) -> int:
        gone = self._book.drop(goes)
        if gone:
            self._apply()
            self._keeper.ended(gone)
            self._observer(PinsEnded(pins=len(gone), reason=reason))
        return len(gone)

    def _apply(self) -> None:
        for tier, residencies in self._tiers.items():
            keys = self._book.keys(tier) | self._hot.keys(tier)
            for residency in residencies:
                residency.pinned.replace(keys)

    def _review(self) -> None:
        if self._hot.review({tier: self._book.keys(tier) for tier in self._tiers}):
            self._apply()

    def _tell_overruled(self) -> None:
        for tier, residencies in self._tiers.items():
            for residency in residencies:
                blocks = residency.overruled - self._overruled.get(residency, 0)
                if blocks:
                    self._overruled[residency] = residency.overruled
                    self._observer(Overruled(tier=tier, blocks=blocks))

    def _status(self, pin: Pin) -> PinStatus:
        return PinStatus(
            id=pin.id,
            owner=pin.owner,
            tenant=pin.tenant,
            namespace=pin.namespace.hex(),
            blocks=len(pin.keys),
            tokens=len(pin.keys) * self._served.block_tokens,
            budget=pin.share,
            until_s=pin.until_ms / 1000,
            durable=self._keeper.durable(pin.id),
            places=tuple(self._place(pin, tier) for tier in self._tiers),
        )

    def _place(self, pin: Pin, tier: str) -> PinPlace:
        states = [residency.state for residency in self._tiers[tier]]
        resident = sum(any(state.slot_of(key) is not None for state in states) for key in pin.keys)
        return PinPlace(tier=tier, granted=tier in pin.tiers, resident=resident)


def _named(selection: Selection, pin: Pin) -> bool:
    below = selection.below
    return selection.may_name(pin.namespace) and (below is None or below in pin.keys)
