"""Headers: what was packed is read, and nothing else is believed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.digest import digest
from pagoda.seal.header import (
    CODECS,
    EMPTY,
    ENCRYPTED,
    HEADER_BYTES,
    Damaged,
    Encryption,
    Seal,
    pack,
    unpack,
)

SLAB = bytes(range(16))
u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
name = st.binary(min_size=32, max_size=32)
encryptions = st.builds(
    Encryption,
    key_id=st.integers(1, 2**32 - 1),
    salt=st.binary(min_size=16, max_size=16),
    nonce=st.binary(min_size=12, max_size=12),
    tag=st.binary(min_size=16, max_size=16),
)
any_seals = st.builds(
    Seal,
    namespace=name,
    key=name,
    parent=name,
    depth=u32,
    tokens=u32,
    generation=u64,
    raw_bytes=u64,
    stored_bytes=u64,
    payload_digest=st.binary(min_size=16, max_size=16),
    created_ms=u64,
    codec=st.sampled_from(sorted(CODECS)),
)


def consistent(seal: Seal, encryption: Encryption) -> Seal:
    """The seal with sizes and encryption as its codec wants them."""
    raw_bytes = max(seal.raw_bytes, 1)
    shrunk = seal.codec & ~ENCRYPTED != 0
    return replace(
        seal,
        raw_bytes=raw_bytes,
        stored_bytes=seal.stored_bytes % raw_bytes if shrunk else raw_bytes,
        encryption=encryption if seal.codec & ENCRYPTED else None,
    )


seals = st.builds(consistent, any_seals, encryptions)
EXAMPLE = Seal(
    namespace=NamespaceId(bytes([1]) * 32),
    key=Key(bytes([2]) * 32),
    parent=Key(bytes([3]) * 32),
    depth=4,
    tokens=16,
    generation=5,
    raw_bytes=368640,
    stored_bytes=368640,
    payload_digest=digest(b"payload"),
    created_ms=1_700_000_000_000,
)
# What Pagoda wrote before there were codecs and encryption.
PLAIN_V1 = bytes.fromhex(
    "504744424c4f434b010000000000000005000000000000000068e5cf8b010000"
    "0101010101010101010101010101010101010101010101010101010101010101"
    "0202020202020202020202020202020202020202020202020202020202020202"
    "0303030303030303030303030303030303030303030303030303030303030303"
    "040000001000000000a005000000000000a00500000000000700000000000000"
    "f3d6e72eb800dea99613f8bbf13ce4e5000102030405060708090a0b0c0d0e0f"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000002bebdc61647cce96acdc8cd3d11899f7"
)


def resealed(header: bytes, offset: int, data: bytes) -> bytes:
    """A header whose author wrote `data` at `offset` and computed a fitting digest."""
    body = header[:offset] + data + header[offset + len(data) : 240]
    return body + digest(body)


@given(seals, u64)
def test_a_header_is_read_as_it_was_packed(seal: Seal, slot: int) -> None:
    """Packing and unpacking lose nothing, whatever the values."""
    header = pack(seal, slot=slot, slab_id=SLAB)
    assert len(header) == HEADER_BYTES
    assert unpack(header, slot=slot, slab_id=SLAB) == seal


@given(seals, st.integers(0, HEADER_BYTES * 8 - 1))
def test_any_flipped_bit_is_noticed(seal: Seal, bit: int) -> None:
    """One bit anywhere in the 256 bytes makes the header untrusted."""
    header = bytearray(pack(seal, slot=7, slab_id=SLAB))
    header[bit // 8] ^= 1 << bit % 8
    assert isinstance(unpack(bytes(header), slot=7, slab_id=SLAB), Damaged)


def test_a_header_belongs_to_its_place() -> None:
    """A header written to another slot, or of another slab, is refused."""
    header = pack(EXAMPLE, slot=7, slab_id=SLAB)
    assert unpack(header, slot=8, slab_id=SLAB) == Damaged("misplaced")
    assert unpack(header, slot=7, slab_id=bytes(16)) == Damaged("misplaced")


def test_an_empty_place_is_empty() -> None:
    """Zeros are no header, and not a damaged one."""
    assert unpack(EMPTY, slot=0, slab_id=SLAB) is None


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, 0x51), (8, 2), (10, 4), (10, 255), (11, 1)],
    ids=["magic", "version", "next codec", "last codec", "codec's high byte"],
)
def test_an_unknown_version_or_codec_is_refused(offset: int, value: int) -> None:
    """A sound header of a later Pagoda is not guessed at."""
    header = resealed(pack(EXAMPLE, slot=7, slab_id=SLAB), offset, bytes([value]))
    assert unpack(header, slot=7, slab_id=SLAB) == Damaged("version")


def test_a_plain_header_has_the_bytes_it_always_had() -> None:
    """Slabs of earlier versions are read, and earlier versions read what is written now."""
    assert pack(EXAMPLE, slot=7, slab_id=SLAB) == PLAIN_V1
    assert unpack(PLAIN_V1, slot=7, slab_id=SLAB) == EXAMPLE


@pytest.mark.parametrize("offset", [*range(12, 16), *range(192, 240)])
def test_bytes_that_must_be_zero_are_zero(offset: int) -> None:
    """A plain header that says something in a reserved place is not a plain header."""
    header = resealed(PLAIN_V1, offset, b"\x01")
    assert unpack(header, slot=7, slab_id=SLAB) == Damaged("reserved")


@pytest.mark.parametrize("codec", [2, 3])
def test_an_encrypted_header_says_how_to_decrypt(codec: int) -> None:
    """The codec says encrypted, and the fields for it are empty: refused."""
    shrunk = resealed(PLAIN_V1, 144, (5).to_bytes(8, "little")) if codec == 3 else PLAIN_V1
    header = resealed(shrunk, 10, bytes([codec]))
    assert unpack(header, slot=7, slab_id=SLAB) == Damaged("reserved")


@pytest.mark.parametrize(
    ("codec", "stored_bytes"),
    [(0, 368639), (0, 368641), (1, 368640), (1, 2**64 - 1)],
    ids=["raw, less", "raw, more", "lossless, as many", "lossless, more"],
)
def test_sizes_that_no_writer_makes_are_refused(codec: int, stored_bytes: int) -> None:
    """Raw payloads keep their size, encoded ones are smaller."""
    header = resealed(PLAIN_V1, 10, bytes([codec]))
    header = resealed(header, 144, stored_bytes.to_bytes(8, "little"))
    assert unpack(header, slot=7, slab_id=SLAB) == Damaged("sizes")


@given(seals, st.integers(0, HEADER_BYTES - 1), st.binary(min_size=1, max_size=9))
def test_a_header_of_another_length_is_refused(seal: Seal, length: int, more: bytes) -> None:
    """Cut off anywhere, or with bytes behind it."""
    header = pack(seal, slot=7, slab_id=SLAB)
    assert isinstance(unpack(header[:length], slot=7, slab_id=SLAB), Damaged)
    assert isinstance(unpack(header + more, slot=7, slab_id=SLAB), Damaged)


def test_the_fields_of_an_encrypted_header() -> None:
    """Key id, nonce, tag and salt lie where docs/design/format.md says."""
    encryption = Encryption(key_id=0x04030201, salt=b"s" * 16, nonce=b"n" * 12, tag=b"t" * 16)
    header = pack(replace(EXAMPLE, codec=2, encryption=encryption), slot=7, slab_id=SLAB)
    assert header[10:12] == bytes([2, 0])
    assert header[192:196] == bytes([1, 2, 3, 4])
    assert header[196:208] == b"n" * 12
    assert header[208:224] == b"t" * 16
    assert header[224:240] == b"s" * 16
    assert header[:10] == PLAIN_V1[:10]
    assert header[12:192] == PLAIN_V1[12:192]


def test_the_byte_table_of_the_format_document() -> None:
    """Fields lie where docs/design/format.md says, little-endian."""
    header = pack(replace(EXAMPLE, codec=0), slot=9, slab_id=SLAB)
    assert header[0:8] == b"PGDBLOCK"
    assert header[8:16] == bytes([1, 0, 0, 0, 0, 0, 0, 0])
    assert int.from_bytes(header[16:24], "little") == 5
    assert int.from_bytes(header[24:32], "little") == 1_700_000_000_000
    assert header[32:64] == EXAMPLE.namespace
    assert header[64:96] == EXAMPLE.key
    assert header[96:128] == EXAMPLE.parent
    assert int.from_bytes(header[128:132], "little") == 4
    assert int.from_bytes(header[132:136], "little") == 16
    assert int.from_bytes(header[136:144], "little") == 368640
    assert int.from_bytes(header[144:152], "little") == 368640
    assert int.from_bytes(header[152:160], "little") == 9
    assert header[160:176] == EXAMPLE.payload_digest
    assert header[176:192] == SLAB
    assert header[192:240] == bytes(48)
    assert header[240:256] == digest(header[:240])


def test_digest_is_canonical_xxh3_128() -> None:
    """The reference vector of the empty input, in canonical byte order."""
    assert digest(b"").hex() == "99aa06d3014798d86001c324468d497f"
