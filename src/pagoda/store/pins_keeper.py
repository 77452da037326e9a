"""Writes pins down with each change, in the background, and says which would survive a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagoda.core.pins import Pin
from pagoda.store.executor import Kind, Lane
from pagoda.store.orders import Orders
from pagoda.store.pins_file import PinsFile

Told = Callable[[bool], None]
_LANE = Lane("pins", Kind.CHECK)


class PinsKeeper:
    """Owner's thread. Changes are numbered; a write settles all that came before it."""

    def __init__(self, file: PinsFile, orders: Orders) -> None:
        self._file = file
        self._orders = orders
        self._change = 0  # the last one
        self._settled = 0  # the last one that was written, or could not be
        self._durable = 0  # the last one that a restart would find
        self._writing = False
        self._changes: dict[str, int] = {}  # by pin, since the start
        self._waiting: list[tuple[int, Told]] = []

    def began(self, id: str, told: Told) -> None:
        """A pin is new, or renewed; `told` is called once it is settled whether it survives."""
        self._change += 1
        self._changes[id] = self._change
        self._waiting.append((self._change, told))

    def ended(self, pins: Sequence[Pin]) -> None:
        """Pins are no more."""
        self._change += 1
        for pin in pins:
            self._changes.pop(pin.id, None)

    def durable(self, id: str) -> bool:
        """Whether a restart would find a pin, as it is."""
        return bool(self._file.places) and self._changes.get(id, 0) <= self._durable

    def poll(self, pins: Callable[[], Sequence[Pin]]) -> None:
        """Send what has changed to be written, one write at a time."""
        if self._writing or self._settled == self._change:
            return
        change, text = self._change, self._file.text(pins())
        self._writing = True

        def written(survives: bool) -> None:
            self._writing = False
            self._settle(change, survives=survives)

        self._orders.send(_LANE, lambda: self._file.write(text), written)

    def close(self, pins: Sequence[Pin]) -> None:
        """Write what has changed. Blocks on I/O."""
        if self._settled < self._change:
            self._settle(self._change, survives=self._file.write(self._file.text(pins)))

    def _settle(self, change: int, *, survives: bool) -> None:
        self._settled = change
        if survives:
            self._durable = change
        for _, told in (one for one in self._waiting if one[0] <= change):
            told(survives)
        self._waiting = [one for one in self._waiting if one[0] > change]
