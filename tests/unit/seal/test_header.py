"""Headers: what was packed is read, and nothing else is believed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.digest import digest
from pagoda.seal.header import EMPTY, HEADER_BYTES, Damaged, Seal, pack, unpack

SLAB = bytes(range(16))
u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
name = st.binary(min_size=32, max_size=32)
seals = st.builds(
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
    codec=st.just(0),
)
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
    ("offset", "value"), [(0, 0x51), (8, 2), (10, 1)], ids=["magic", "version", "codec"]
)
def test_an_unknown_version_or_codec_is_refused(offset: int, value: int) -> None:
    """A sound header of a later Pagoda is not guessed at."""
    header = bytearray(pack(EXAMPLE, slot=7, slab_id=SLAB))
    header[offset] = value
    header[240:] = digest(bytes(header[:240]))
    assert unpack(bytes(header), slot=7, slab_id=SLAB) == Damaged("version")


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
