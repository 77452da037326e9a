"""Pins in vLLM's host memory: prompts whose chunks stay, for a while and within a budget.

vLLM's names cannot be made from a prompt alone, so a pin is asked for by a request that has the
prompt. Nothing of it survives the engine: neither does its host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagoda.core.errors import RequestError
from pagoda.core.identity import DIGEST_BYTES, Key, NamespaceId
from pagoda.core.pin_book import PinBook
from pagoda.core.pinned import PinnedSlots
from pagoda.core.pins import Pin, PinLimits, PinWish, Room, checked

_HERE = NamespaceId(bytes(DIGEST_BYTES))  # one engine's chunks: its names are all there is


class HostPins:
    """The pins over one engine's host memory of `slots` chunks. `wall_ms` is since the epoch."""

    def __init__(
        self, pinned: PinnedSlots, limits: PinLimits, *, slots: int, wall_ms: Callable[[], int]
    ) -> None:
        self._pinned = pinned
        self._limits = limits
        self._room = Room(tier="host", slots=slots, memory=True)
        self._wall_ms = wall_ms
        self._book = PinBook([self._room], limits)
        self._end_ms: int | None = None

    def add(self, names: Sequence[Key], wish: PinWish) -> Pin:
        """Pin a prompt's chunks, here or not, or renew their pin. RequestError, of which
        PinRefused, for what is not pinned."""
        seconds, share = checked(wish, self._limits)
        if not names:
            raise RequestError("the prompt has no whole chunk", param="pagoda_pin")
        now_ms = self._wall_ms()  # once: what is over, and until when, of one moment
        self._end_until(now_ms)
        pin = Pin(
            owner=wish.owner,
            tenant="",
            namespace=_HERE,
            generation="",
            keys=tuple(names),
            share=share,
            until_ms=now_ms + int(seconds * 1000),
        )
        before = self._book.find(pin.id)
        pin = self._book.add(pin)
        self._pinned.add(pin.keys)
        self._end_ms = self._book.next_end_ms()
        if before is not None:
            self._unpin(before)
        return pin

    def remove(self, owner: str) -> int:
        """End all pins of an owner; returns how many."""
        return self._end(lambda pin: pin.owner == owner)

    def expire(self) -> None:
        """End what is over."""
        if self._end_ms is not None:
            self._end_until(self._wall_ms())

    def clear(self) -> None:
        """Host memory was cleared: what names its chunks is no pin any more."""
        self._book = PinBook([self._room], self._limits)
        self._pinned.replace(())
        self._end_ms = None

    def check_invariants(self) -> None:
        """Budgets hold, and what is granted is what is pinned."""
        self._book.check_invariants()
        assert self._pinned.keys == self._book.keys(self._room.tier), "pins out of step"
        self._pinned.check_invariants()

    def _end_until(self, now_ms: int) -> None:
        if self._end_ms is not None and now_ms >= self._end_ms:
            self._end(lambda pin: pin.until_ms <= now_ms)

    def _end(self, goes: Callable[[Pin], bool]) -> int:
        gone = self._book.drop(goes)
        for pin in gone:
            self._unpin(pin)
        self._end_ms = self._book.next_end_ms()
        return len(gone)

    def _unpin(self, pin: Pin) -> None:
        """What no pin names any more is pinned no more."""
        keeps, tier = self._book.keeps, self._room.tier
        self._pinned.remove([name for name in pin.keys if not keeps(tier, name)])
