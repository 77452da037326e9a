"""The seal wrapper: a hit is byte-equal, and whatever else happens is an outcome and zeros."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pagoda.core.errors import TierFault, TierFull, TierTimeout
from pagoda.core.events import Reason
from pagoda.core.identity import ROOT, Key, NamespaceId
from pagoda.core.outcome import Corrupt, Hit, Miss, Outcome, Unavailable
from pagoda.seal.cipher import Cipher
from pagoda.seal.codec import codec_named
from pagoda.seal.envelope import Envelope
from pagoda.seal.header import Seal
from pagoda.seal.keyring import read_keyring
from pagoda.testing.conformance import buffer_for, payload_of
from pagoda.testing.faults import Faults, FaultyTier
from pagoda.tiers.host import HostTier
from pagoda.tiers.sealed import Order, SealedTier

SIZE = 8192


def key(number: int) -> Key:
    """A key for tests."""
    return Key(number.to_bytes(32, "big"))


def seal_for(number: int, generation: int = 0) -> Seal:
    """A seal to store a whole slot under."""
    return Seal(
        namespace=NamespaceId(bytes(32)),
        key=key(number),
        parent=ROOT,
        depth=0,
        tokens=16,
        generation=generation,
        raw_bytes=SIZE,
        stored_bytes=SIZE,
        payload_digest=bytes(16),
        created_ms=1,
    )


@pytest.fixture
def faulty() -> FaultyTier:
    """A host tier of 8 slots that can be broken."""
    return FaultyTier(HostTier(slots=8, slot_bytes=SIZE))


@pytest.fixture
def sealed(faulty: FaultyTier) -> SealedTier:
    """The same, sealed, with blocks 0 to 3 in slots 0 to 3."""
    tier = SealedTier(faulty)
    tier.store(
        [0, 1, 2, 3],
        [seal_for(n) for n in range(4)],
        [payload_of(faulty, n) for n in range(4)],
    )
    return tier


def load(
    tier: SealedTier, slots: list[int], *, generation: int = 0
) -> tuple[list[Outcome], list[memoryview]]:
    """Read blocks that should be in the slots of their number, into dirty buffers."""
    buffers = [buffer_for(tier.tier) for _ in slots]
    for buffer in buffers:
        buffer[:] = b"\xee" * len(buffer)
    outcomes = tier.load([Order(slot, generation, key(slot)) for slot in slots], buffers)
    return outcomes, buffers


def test_sound_blocks_are_hits(sealed: SealedTier) -> None:
    """Verified bytes arrive as they were stored."""
    outcomes, buffers = load(sealed, [3, 0, 1])
    assert outcomes == [Hit("host")] * 3
    assert [bytes(b) for b in buffers] == [bytes(payload_of(sealed.tier, n)) for n in (3, 0, 1)]


BREAK: dict[str, tuple[Callable[[Faults], None], Outcome]] = {
    "flipped bit": (
        lambda f: f.flip_on_read.add(1),
        Corrupt("host", Reason.CORRUPT),
    ),
    "short read": (
        lambda f: f.short_read.update({1: SIZE - 1}),
        Corrupt("host", Reason.TRUNCATED),
    ),
    "empty read": (
        lambda f: f.short_read.update({1: 0}),
        Corrupt("host", Reason.TRUNCATED),
    ),
    "input/output error": (
        lambda f: f.read_error.update({1: TierFault("bad sector", tier="host")}),
        Unavailable("host", Reason.IO_ERROR),
    ),
    "time-out": (
        lambda f: f.read_error.update({1: TierTimeout("stuck", tier="host", deadline_s=1)}),
        Unavailable("host", Reason.TIMEOUT),
    ),
}


@pytest.mark.parametrize("kind", BREAK)
def test_one_bad_block_costs_one_block(sealed: SealedTier, faulty: FaultyTier, kind: str) -> None:
    """Its outcome says what happened, its buffer is zeroed, its neighbours are hits."""
    damage, expected = BREAK[kind]
    damage(faulty.faults)
    outcomes, buffers = load(sealed, [0, 1, 2])
    assert outcomes == [Hit("host"), expected, Hit("host")]
    assert bytes(buffers[1]) == bytes(SIZE)
    assert bytes(buffers[2]) == bytes(payload_of(faulty, 2))


def test_a_tier_that_breaks_its_contract_is_a_broken_tier(
    sealed: SealedTier, faulty: FaultyTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that no tier should raise is an unavailable block, not an outage."""

    def explode(*args: object) -> list[int]:
        raise KeyError("a deleted file")

    monkeypatch.setattr(faulty, "read", explode)
    outcomes, buffers = load(sealed, [0, 1])
    assert outcomes == [Unavailable("host", Reason.IO_ERROR)] * 2
    assert bytes(buffers[0]) == bytes(SIZE)
    monkeypatch.setattr(faulty, "read", lambda slots, into: [SIZE] * (len(slots) + 1))
    assert load(sealed, [0, 1])[0] == [Unavailable("host", Reason.IO_ERROR)] * 2
    monkeypatch.setattr(faulty, "write", explode)
    with pytest.raises(TierFault, match="KeyError"):
        sealed.store([5], [seal_for(5)], [payload_of(faulty, 5)])
    monkeypatch.setattr(faulty, "free", explode)
    with pytest.raises(TierFault, match="KeyError"):
        sealed.free([0])


def test_a_lost_write_is_noticed(sealed: SealedTier, faulty: FaultyTier) -> None:
    """The old payload under the new seal is refused: a write that was acknowledged and lost."""
    faulty.faults.lose_write.add(2)
    sealed.store([2], [seal_for(2, generation=1)], [payload_of(faulty, 77)])
    outcomes, _ = load(sealed, [2], generation=1)
    assert outcomes == [Corrupt("host", Reason.CORRUPT)]


def test_a_misdirected_write_is_noticed_in_both_places(
    sealed: SealedTier, faulty: FaultyTier
) -> None:
    """The slot that was hit and the slot that was meant both refuse."""
    faulty.faults.misdirect_write[2] = 3
    sealed.store([2], [seal_for(2, generation=1)], [payload_of(faulty, 77)])
    assert load(sealed, [2], generation=1)[0] == [Corrupt("host", Reason.CORRUPT)]
    assert load(sealed, [3])[0] == [Corrupt("host", Reason.CORRUPT)]


def test_another_generation_is_stale(sealed: SealedTier) -> None:
    """A reader from before a slot's reuse gets nothing, and no bytes either."""
    outcomes, buffers = load(sealed, [1], generation=1)
    assert outcomes == [Miss(Reason.STALE)]
    assert bytes(buffers[0]) == bytes(SIZE)


def test_another_key_is_refused(sealed: SealedTier) -> None:
    """The incident: an index that leads to another block's slot."""
    buffer = buffer_for(sealed.tier)
    outcomes = sealed.load([Order(1, 0, key(2))], [buffer])
    assert outcomes == [Miss(Reason.STALE)]
    assert bytes(buffer) == bytes(SIZE)


@pytest.mark.parametrize("fault", ["write_error", "commit_error"])
def test_a_failed_store_leaves_nothing_to_find(
    sealed: SealedTier, faulty: FaultyTier, fault: str
) -> None:
    """A write that failed is invisible (peers have served such blocks as hits later)."""
    setattr(faulty.faults, fault, TierFull("no space", tier="host"))
    with pytest.raises(TierFull):
        sealed.store([2], [seal_for(9)], [payload_of(faulty, 9)])
    faulty.faults.clear()
    assert not sealed.seals.present[2]
    assert 2 not in dict(faulty.scan())
    buffer = buffer_for(faulty)
    assert sealed.load([Order(2, 0, key(9))], [buffer]) == [Miss(Reason.STALE)]


def test_a_scan_reports_sound_and_damaged_headers(faulty: FaultyTier) -> None:
    """Damaged headers are listed apart and are not loaded from."""
    SealedTier(faulty).store([0, 1], [seal_for(0), seal_for(1)], [payload_of(faulty, 0)] * 2)
    faulty.inner.commit([1], [b"\x01" * 256])
    again = SealedTier(faulty)
    found = again.scan()
    assert (found.slots.tolist(), found.keys) == ([0], key(0))
    assert found.damaged == [1]
    assert load(again, [0])[0] == [Hit("host")]
    assert load(again, [1])[0] == [Miss(Reason.STALE)]


def test_a_buffer_of_another_size_is_not_half_filled(sealed: SealedTier) -> None:
    """Peers have served a short block with its second half left over from the pool."""
    for size in (SIZE - 8, 2 * SIZE):
        buffer = memoryview(bytearray(b"\xdd" * size))
        outcome = sealed.load([Order(0, 0, key(0))], [buffer])
        assert outcome == [Miss(Reason.MISPLACED)], "the caller's mistake, not the block's"
        assert bytes(buffer) == bytes(size)


KEY_FILE = "1:" + "ab" * 32 + "\n"


@pytest.fixture
def cipher(tmp_path: Path) -> Cipher:
    """A cipher with one key."""
    path = tmp_path / "keys"
    path.write_text(KEY_FILE, encoding="ascii")
    path.chmod(0o600)
    return Cipher(read_keyring(path, setting="drive.key_file"))


@pytest.mark.parametrize("codec", ["raw", "lossless"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_coded_and_encrypted_blocks_come_back(
    faulty: FaultyTier, cipher: Cipher, codec: str, encrypted: bool
) -> None:
    """Whatever lies on the medium, a hit is the block; a flipped byte of it is none."""
    envelope = Envelope(codec_named(codec, setting="drive.codec"), cipher if encrypted else None)
    tier = SealedTier(faulty, envelope)
    payloads = [payload_of(faulty, n) for n in range(3)]
    tier.store([0, 1, 2], [seal_for(n) for n in range(3)], payloads)
    stored = buffer_for(faulty)
    faulty.inner.read([1], [stored])
    assert (bytes(stored) == bytes(payloads[1])) == (codec == "raw" and not encrypted)
    again = SealedTier(faulty, envelope)
    assert sorted(again.scan().slots.tolist()) == [0, 1, 2]
    faulty.faults.flip_on_read = {2}
    for side in (tier, again):
        buffers = [buffer_for(faulty) for _ in range(3)]
        outcomes = side.load([Order(n, 0, key(n)) for n in range(3)], buffers)
        assert outcomes == [Hit("host"), Hit("host"), Corrupt("host", Reason.CORRUPT)]
        assert [bytes(b) for b in buffers] == [*map(bytes, payloads[:2]), bytes(SIZE)]


def test_without_the_key_and_without_a_seal_of_it_there_is_no_block(
    faulty: FaultyTier, cipher: Cipher
) -> None:
    """Encrypted blocks are misses to whoever lacks the key; with a key, plain ones are. A scan
    lists them apart, so that nothing leads to them and they are stored anew."""
    SealedTier(faulty, Envelope(cipher=cipher)).store([0], [seal_for(0)], [payload_of(faulty, 0)])
    SealedTier(faulty).store([1], [seal_for(1, generation=7)], [payload_of(faulty, 1)])
    for envelope, there, closed in ((Envelope(), 1, 0), (Envelope(cipher=cipher), 0, 1)):
        tier = SealedTier(faulty, envelope)
        found = tier.scan()
        assert (found.slots.tolist(), found.keys, found.closed) == ([there], key(there), [closed])
        assert found.floor == 8
        buffers = [buffer_for(faulty), buffer_for(faulty)]
        orders = [Order(0, 0, key(0)), Order(1, 7, key(1))]
        outcomes = tier.load(orders, buffers)
        assert outcomes[there] == Hit("host")
        assert outcomes[closed] == Miss(Reason.STALE)


def test_what_cannot_be_opened_is_refused_by_whoever_finds_it(
    faulty: FaultyTier, cipher: Cipher
) -> None:
    """As when a tier changes its envelope while it is open: it is no fault of the block."""
    tier = SealedTier(faulty, Envelope(cipher=cipher))
    tier.store([0], [seal_for(0)], [payload_of(faulty, 0)])
    tier.envelope = Envelope()
    assert tier.load([Order(0, 0, key(0))], [buffer_for(faulty)]) == [Miss(Reason.LOCKED)]
    tier.store([1], [seal_for(1)], [payload_of(faulty, 1)])
    tier.envelope = Envelope(cipher=cipher)
    assert tier.load([Order(1, 0, key(1))], [buffer_for(faulty)]) == [Miss(Reason.UNSIGNED)]
