"""Seals over tiers whose bytes are digested on the way: what is refused, and what is sealed."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from pagoda.core.events import Reason
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.outcome import Corrupt, Hit, Miss
from pagoda.machine.buffers import aligned_buffer
from pagoda.seal.header import Seal
from pagoda.tiers.host import HostTier
from pagoda.tiers.port import See, streaming
from pagoda.tiers.sealed import Order, SealedTier

SIZE = 600 << 10  # more than one piece, and not a multiple of it
KEY = Key(hashlib.sha256(b"block").digest())


def seal_of(size: int) -> Seal:
    """A seal whose digest is still to be filled in."""
    return Seal(
        namespace=NamespaceId(bytes(32)),
        key=KEY,
        parent=Key(bytes(32)),
        depth=0,
        tokens=16,
        generation=5,
        raw_bytes=size,
        stored_bytes=size,
        payload_digest=bytes(16),
        created_ms=1,
    )


def payload_of(size: int) -> memoryview:
    """Random bytes on a page."""
    buffer = memoryview(aligned_buffer(size))[:size]
    buffer[:] = np.random.default_rng(size).bytes(size)
    return buffer


@pytest.fixture
def sealed() -> SealedTier:
    """A streaming tier behind seals."""
    return SealedTier(HostTier(slots=2, slot_bytes=SIZE))


def load(sealed: SealedTier, size: int) -> tuple[object, memoryview]:
    """Read slot 1 into a buffer that held something."""
    into = memoryview(bytearray(b"\xaa" * size))
    (outcome,) = sealed.load([Order(1, 5, KEY)], [into])
    return outcome, into


@pytest.mark.parametrize("size", [1, 4096, SIZE - 1, SIZE])
def test_blocks_of_any_size_come_back(sealed: SealedTier, size: int) -> None:
    """Written and read through, byte for byte."""
    assert streaming(sealed.tier) is not None
    payload = payload_of(size)
    sealed.store([1], [seal_of(size)], [payload])
    outcome, into = load(sealed, size)
    assert outcome == Hit(sealed.name)
    assert into == payload


@pytest.mark.parametrize("at", [0, SIZE // 2, SIZE - 1])
def test_a_flipped_bit_in_any_piece_is_found(sealed: SealedTier, at: int) -> None:
    """Nothing of the block is left in the reader's buffer."""
    payload = payload_of(SIZE)
    sealed.store([1], [seal_of(SIZE)], [payload])
    payload[at] ^= 1
    sealed.tier.write([1], [payload])
    outcome, into = load(sealed, SIZE)
    assert outcome == Corrupt(sealed.name, Reason.CORRUPT)
    assert into == bytes(SIZE)


class Careless(HostTier):
    """Memory that loses a bit of what is written through it."""

    def write_through(self, slot: int, payload: memoryview, see: See) -> None:
        super().write_through(slot, payload, see)
        damaged = bytearray(payload)
        damaged[7] ^= 1
        super().write([slot], [memoryview(damaged)])


def test_a_bad_copy_is_not_sealed_as_a_good_one() -> None:
    """The seal is of the caller's bytes, so the first reader finds the bad copy."""
    sealed = SealedTier(Careless(slots=2, slot_bytes=SIZE))
    sealed.store([1], [seal_of(SIZE)], [payload_of(SIZE)])
    outcome, _ = load(sealed, SIZE)
    assert outcome == Corrupt("host", Reason.CORRUPT)


class GivenAway(HostTier):
    """Memory in which a slot is overwritten while it is read."""

    sealed: SealedTier

    def read_through(self, slot: int, into: memoryview, see: See) -> int:
        def and_overwrite(piece: object) -> None:
            see(piece)
            self.sealed.store([slot], [seal_of(SIZE)], [payload_of(SIZE - 1)])

        return super().read_through(slot, into, and_overwrite)


def test_a_slot_that_is_given_away_during_a_read_is_refused() -> None:
    """The digest was of the old bytes, and some of the new ones were copied."""
    tier = GivenAway(slots=2, slot_bytes=SIZE)
    sealed = tier.sealed = SealedTier(tier)
    sealed.store([1], [replace(seal_of(SIZE), generation=4)], [payload_of(SIZE)])
    into = memoryview(bytearray(b"\xaa" * SIZE))
    (outcome,) = sealed.load([Order(1, 4, KEY)], [into])
    assert outcome == Miss(Reason.STALE)
    assert into == bytes(SIZE)
