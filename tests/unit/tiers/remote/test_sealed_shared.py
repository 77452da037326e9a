"""The seal of shared values: what comes out is what was sealed for that name, or zeros."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagoda.core.errors import TierFault
from pagoda.core.events import Reason
from pagoda.core.identity import ROOT, Key, NamespaceId
from pagoda.core.outcome import Corrupt, Hit, Miss, Outcome, Unavailable
from pagoda.seal.envelope import PLAIN, Envelope
from pagoda.seal.header import HEADER_BYTES, Seal, pack
from pagoda.seal.keyring import Keyring
from pagoda.seal.mac import TRAILER_BYTES, Signer
from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared
from pagoda.tiers.remote.sealed import Name, SealedShared, prefix_of

SIZE = 512
SPACE = NamespaceId(bytes(range(32)))
OTHER_SPACE = NamespaceId(bytes(32))


def name_of(number: int, space: NamespaceId = SPACE) -> Name:
    return Name(space, Key(bytes([number]) * 32))


def payload_of(number: int) -> memoryview:
    return memoryview(bytes((number + i) % 251 for i in range(SIZE)))


def seal_of(number: int, space: NamespaceId = SPACE) -> Seal:
    return Seal(
        namespace=space,
        key=name_of(number).key,
        parent=ROOT,
        depth=0,
        tokens=16,
        generation=0,
        raw_bytes=SIZE,
        stored_bytes=SIZE,
        payload_digest=bytes(16),
        created_ms=1000,
    )


@pytest.fixture
def tier() -> FaultyShared:
    return FaultyShared(MemoryShared())


def load(sealed: SealedShared, name: Name) -> tuple[Outcome, memoryview]:
    """One block into a dirty buffer."""
    buffer = memoryview(bytearray(b"\xdd" * SIZE))
    outcomes = sealed.load([name], [buffer], claim=lambda: True)
    assert outcomes is not None
    return outcomes[0], buffer


def assert_refused(sealed: SealedShared, name: Name, reason: Reason) -> None:
    """The block is refused for that reason, and the buffer is zeroed."""
    outcome, buffer = load(sealed, name)
    assert outcome == Corrupt("remote", reason)
    assert not any(buffer)


def test_a_block_comes_back_whole(tier):
    """Several in one call, an absent one between."""
    sealed = SealedShared(tier)
    sealed.store([seal_of(1), seal_of(2)], [payload_of(1), payload_of(2)])
    buffers = [memoryview(bytearray(b"\xdd" * SIZE)) for _ in range(3)]
    outcomes = sealed.load([name_of(2), name_of(3), name_of(1)], buffers, claim=lambda: True)
    assert outcomes == [Hit("remote"), Miss(), Hit("remote")]
    assert buffers[0] == payload_of(2)
    assert not any(buffers[1])
    assert buffers[2] == payload_of(1)


def test_a_name_is_namespace_and_key_in_hexadecimal(tier):
    """As docs/design/format.md says; a value is header and payload."""
    sent = SealedShared(tier).store([seal_of(1)], [payload_of(1)])
    (name, value), *rest = tier.inner.values.items()
    assert not rest
    assert name == f"{SPACE.hex()}/{'01' * 32}"
    assert sent == len(value) == HEADER_BYTES + SIZE
    assert value[HEADER_BYTES:] == payload_of(1)


def test_a_flipped_byte_is_refused_wherever_it_is(tier):
    """In header, payload and trailer; none of them is served."""
    for signer in (None, signer_of({1: bytes(32)})):
        sealed = SealedShared(tier, signer=signer)
        sealed.store([seal_of(1)], [payload_of(1)])
        for position in range(0, len(tier.inner.values[str(name_of(1))])):
            tier.faults.flip = {str(name_of(1)): position}
            outcome, buffer = load(sealed, name_of(1))
            assert not isinstance(outcome, Hit), position
            assert not any(buffer), position


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + SIZE - 1])
def test_a_cut_value_is_refused(tier, length):
    """However much is left of it."""
    sealed = SealedShared(tier)
    sealed.store([seal_of(1)], [payload_of(1)])
    tier.faults.cut[str(name_of(1))] = length
    assert_refused(sealed, name_of(1), Reason.TRUNCATED)


def test_a_value_with_bytes_behind_it_is_refused(tier):
    """Its length is its header's, and a trailer's."""
    sealed = SealedShared(tier)
    sealed.store([seal_of(1)], [payload_of(1)])
    tier.inner.values[str(name_of(1))] += b"more"
    assert_refused(sealed, name_of(1), Reason.CORRUPT)


def test_another_blocks_value_is_refused(tier):
    """Sound, but of another key; and of the same key in another namespace."""
    sealed = SealedShared(tier)
    sealed.store([seal_of(1), seal_of(2)], [payload_of(1), payload_of(2)])
    sealed.store([seal_of(1, OTHER_SPACE)], [payload_of(9)])
    for other in (name_of(2), name_of(1, OTHER_SPACE)):
        tier.faults.swap[str(name_of(1))] = str(other)
        assert_refused(sealed, name_of(1), Reason.MISPLACED)


def test_a_drives_header_is_no_shared_one(tier):
    """Slot and slab id are zero in a shared store."""
    sealed = SealedShared(tier)
    sealed.store([seal_of(1)], [payload_of(1)])
    value = tier.inner.values[str(name_of(1))]
    header = pack(seal_of(1), slot=3, slab_id=bytes(16))
    tier.inner.values[str(name_of(1))] = header + value[HEADER_BYTES:]
    assert_refused(sealed, name_of(1), Reason.CORRUPT)


def test_a_block_of_another_size_is_refused(tier):
    """The buffer's size is the layout's."""
    sealed = SealedShared(tier)
    seal = replace(seal_of(1), raw_bytes=SIZE // 2, stored_bytes=SIZE // 2)
    sealed.store([seal], [payload_of(1)[: SIZE // 2]])
    assert_refused(sealed, name_of(1), Reason.MISPLACED)


def test_what_only_we_cannot_read_is_a_miss_and_left_to_others(tier):
    """A version or a key of the future is no damage."""
    pytest.importorskip("cryptography")
    ours = SealedShared(tier, envelope=encrypting({1: bytes(32)}))
    theirs = SealedShared(tier, envelope=encrypting({2: b"\x01" * 32}))
    theirs.store([seal_of(1)], [payload_of(1)])
    outcome, buffer = load(ours, name_of(1))
    assert outcome == Miss(Reason.LOCKED)
    assert not any(buffer)


def test_an_error_is_unavailable_for_each_block(tier):
    """No exception of a tier leaves."""
    tier.faults.read_error = TierFault("down", tier="remote")
    outcome, buffer = load(SealedShared(tier), name_of(1))
    assert outcome == Unavailable("remote", Reason.IO_ERROR)
    assert not any(buffer)


def test_a_wrong_number_of_answers_is_a_fault():
    """Values are never matched to the wrong names."""

    class Short(MemoryShared):
        def get(self, names, limit_bytes):
            return super().get(names, limit_bytes)[1:]

        def has(self, names):
            return [*super().has(names), True]

    sealed = SealedShared(Short())
    sealed.store([seal_of(1), seal_of(2)], [payload_of(1), payload_of(2)])
    buffers = [memoryview(bytearray(SIZE)) for _ in range(2)]
    outcomes = sealed.load([name_of(1), name_of(2)], buffers, claim=lambda: True)
    assert outcomes == [Unavailable("remote", Reason.IO_ERROR)] * 2
    with pytest.raises(TierFault):
        sealed.has([name_of(1)])


def test_buffers_that_are_not_wanted_any_more_are_not_touched(tier):
    """Neither filled nor zeroed: they may belong to somebody else by now."""
    sealed = SealedShared(tier)
    sealed.store([seal_of(1)], [payload_of(1)])
    buffer = memoryview(bytearray(b"\xdd" * SIZE))
    assert sealed.load([name_of(1)], [buffer], claim=lambda: False) is None
    assert bytes(buffer) == b"\xdd" * SIZE


def test_clearing_drops_a_namespace_and_no_other(tier):
    """Across more names than one call deletes, and seen by a second listing."""
    sealed = SealedShared(tier)
    for i in range(2500):
        tier.inner.values[f"{prefix_of(SPACE)}{i:064x}"] = b"x"
    sealed.store([seal_of(1, OTHER_SPACE)], [payload_of(1)])
    cleared = sealed.clear(SPACE)
    assert (cleared.dropped, cleared.left) == (2500, 0)
    assert list(tier.inner.values) == [str(name_of(1, OTHER_SPACE))]


def test_a_store_that_does_not_delete_is_found_out(tier):
    """The listing counts what is left."""
    sealed = SealedShared(tier)
    sealed.store([seal_of(1), seal_of(2)], [payload_of(1), payload_of(2)])
    tier.faults.keep.add(str(name_of(1)))
    cleared = sealed.clear(SPACE)
    assert (cleared.dropped, cleared.left) == (2, 1)


# Against somebody who can write to the store.


def signer_of(masters: dict[int, bytes]) -> Signer:
    """Signs with the first of these keys."""
    pytest.importorskip("blake3")
    return Signer(Keyring(masters), setting="remote")


def encrypting(masters: dict[int, bytes]) -> Envelope:
    """Encrypts with the first of these keys."""
    return Envelope.of("raw", Keyring(masters), setting="remote")


def test_a_planted_block_is_refused_where_values_are_signed(tier):
    """A sound value without a trailer, with one of another key, and with a borrowed one."""
    sealed = SealedShared(tier, signer=signer_of({1: bytes(32)}))
    sealed.store([seal_of(2)], [payload_of(2)])
    trailer = tier.inner.values[str(name_of(2))][-TRAILER_BYTES:]

    SealedShared(tier).store([seal_of(1)], [payload_of(66)])
    assert_refused(sealed, name_of(1), Reason.UNSIGNED)
    tier.inner.values[str(name_of(1))] += trailer
    assert_refused(sealed, name_of(1), Reason.CORRUPT)
    SealedShared(tier, signer=signer_of({1: b"\x01" * 32})).store([seal_of(1)], [payload_of(66)])
    assert_refused(sealed, name_of(1), Reason.CORRUPT)


def test_signed_values_survive_a_change_of_keys(tier):
    """Read with any key of the ring, written with its first; one that is gone reads as a miss."""
    SealedShared(tier, signer=signer_of({1: bytes(32)})).store([seal_of(1)], [payload_of(1)])
    both = SealedShared(tier, signer=signer_of({2: b"\x02" * 32, 1: bytes(32)}))
    assert load(both, name_of(1))[0] == Hit("remote")
    both.store([seal_of(1)], [payload_of(1)])
    old = SealedShared(tier, signer=signer_of({1: bytes(32)}))
    assert load(old, name_of(1))[0] == Miss(Reason.LOCKED)


def test_a_node_without_keys_reads_what_is_signed(tier):
    """It cannot tell who wrote it, but that it is whole."""
    SealedShared(tier, signer=signer_of({1: bytes(32)})).store([seal_of(1)], [payload_of(1)])
    outcome, buffer = load(SealedShared(tier), name_of(1))
    assert outcome == Hit("remote")
    assert buffer == payload_of(1)


def test_encrypted_values_reveal_nothing_and_cannot_be_planted(tier):
    """The payload is not in the store; a plain block is refused."""
    pytest.importorskip("cryptography")
    sealed = SealedShared(tier, envelope=encrypting({1: bytes(32)}))
    sealed.store([seal_of(1)], [payload_of(1)])
    assert bytes(payload_of(1)[:32]) not in tier.inner.values[str(name_of(1))]
    outcome, buffer = load(sealed, name_of(1))
    assert outcome == Hit("remote")
    assert buffer == payload_of(1)
    SealedShared(tier, envelope=PLAIN).store([seal_of(1)], [payload_of(66)])
    assert_refused(sealed, name_of(1), Reason.UNSIGNED)
