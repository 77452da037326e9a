"""Blocks that wait to be shared: a queue bounded in bytes, each block in it once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pagoda.core.identity import Key
from pagoda.store.writer import Block
from pagoda.tiers.remote.sealed import Name


@dataclass(slots=True, eq=False)
class Offer:
    """A block to share. `release` is called once, from the owner's thread, when its bytes are
    no longer needed, whether they were stored or not.

    `load` None: the bytes are `block.payload`. Else it fills a buffer with them in an I/O
    thread, verified, from a slot that the giver keeps leased until `release`; False: lost.
    """

    block: Block
    release: Callable[[], object]
    load: Callable[[memoryview], bool] | None = None
    until_s: float = 0.0  # set by whoever queues it

    @property
    def name(self) -> Name:
        """What the block is called in the shared store."""
        return Name(self.block.namespace, self.block.key)

    @property
    def size_bytes(self) -> int:
        """Bytes of its payload."""
        return len(self.block.payload)


class OfferQueue:
    """Offers in the order they came; the first is the first to be late."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._offers: dict[Key, Offer] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._offers)

    def __contains__(self, key: Key) -> bool:
        return key in self._offers

    def fits(self, offer: Offer) -> bool:
        """Whether there is room for it."""
        return self._size_bytes + offer.size_bytes <= self._limit_bytes

    def push(self, offer: Offer) -> None:
        """Put an offer at the end. Its block must not be waiting already."""
        assert offer.block.key not in self._offers, "a block waits once"
        self._offers[offer.block.key] = offer
        self._size_bytes += offer.size_bytes

    def take(self, count: int) -> list[Offer]:
        """The first `count` offers, or all there are."""
        first = [key for key, _ in zip(self._offers, range(count), strict=False)]
        return [self._pop(key) for key in first]

    def take_where(self, chosen: Callable[[Offer], bool]) -> list[Offer]:
        """Every offer that is chosen; the others stay in order."""
        return [self._pop(key) for key, offer in list(self._offers.items()) if chosen(offer)]

    def take_late(self, now_s: float) -> Iterator[Offer]:
        """Offers whose time is over."""
        while self._offers:
            key, offer = next(iter(self._offers.items()))
            if offer.until_s > now_s:
                return
            yield self._pop(key)

    def check_invariants(self) -> None:
        """The bytes add up."""
        total = sum(offer.size_bytes for offer in self._offers.values())
        assert self._size_bytes == total, f"{self._size_bytes} bytes counted, {total} queued"

    def _pop(self, key: Key) -> Offer:
        offer = self._offers.pop(key)
        self._size_bytes -= offer.size_bytes
        return offer
