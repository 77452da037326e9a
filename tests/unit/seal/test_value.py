"""Values of a shared store: nobody without the key can plant one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from seal_samples import (
    BEFORE,
    ENVELOPES,
    KEY,
    NAMESPACE,
    NEW,
    OLD,
    ROTATED,
    kv_like,
    opened,
    seal_for,
)

from pagoda.core.errors import SettingsError
from pagoda.core.events import Reason
from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.digest import digest
from pagoda.seal.header import HEADER_BYTES
from pagoda.seal.keyring import Keyring, expand
from pagoda.seal.mac import TRAILER_BYTES, Signer
from pagoda.seal.value import OVERHEAD_BYTES, Value, pieces, read

SIGNER = Signer(ROTATED, setting="remote.mac_key_file")
PAYLOAD = kv_like(3001)
names = st.sampled_from(sorted(ENVELOPES))


def value_of(name: str, signer: Signer | None, payload: memoryview = PAYLOAD) -> bytes:
    return b"".join(pieces(*ENVELOPES[name].wrap(seal_for(payload), payload), signer))


def fetched(name: str, value: bytes | bytearray, signer: Signer | None) -> bytes | Reason:
    """What a reader gets: taken apart, then unwrapped."""
    found = read(memoryview(value), namespace=NAMESPACE, key=KEY, signer=signer)
    if not isinstance(found, Value):
        return found
    assert found.seal.raw_bytes == len(PAYLOAD), "a lying size would be the reader's to refuse"
    return opened(ENVELOPES[name], found.seal, found.stored)


@pytest.mark.parametrize("name", sorted(ENVELOPES))
@pytest.mark.parametrize("signer", [None, SIGNER], ids=["plain", "signed"])
def test_a_value_comes_back(name: str, signer: Signer | None) -> None:
    """And has the length that its header states, with or without a trailer."""
    value = value_of(name, signer)
    stored_bytes = int.from_bytes(value[144:152], "little")
    assert len(value) == HEADER_BYTES + stored_bytes + (TRAILER_BYTES if signer else 0)
    assert len(value) <= len(PAYLOAD) + OVERHEAD_BYTES
    assert fetched(name, value, signer) == PAYLOAD


@pytest.mark.parametrize("size", [1, 2, 4097, 2 * 2**20 + 1])
def test_values_of_any_size(size: int) -> None:
    payload = kv_like(size)
    value = memoryview(value_of("both", SIGNER, payload))
    found = read(value, namespace=NAMESPACE, key=KEY, signer=SIGNER)
    assert isinstance(found, Value)
    assert opened(ENVELOPES["both"], found.seal, found.stored) == payload


@pytest.mark.parametrize("name", sorted(ENVELOPES))
@pytest.mark.parametrize("signer", [None, SIGNER], ids=["plain", "signed"])
def test_every_bit_of_header_and_trailer_counts(name: str, signer: Signer | None) -> None:
    """Flip each of them: no value passes."""
    value = value_of(name, signer)
    tail = TRAILER_BYTES if signer else 0
    for byte in [*range(HEADER_BYTES), *range(len(value) - tail, len(value))]:
        for bit in range(8):
            damaged = bytearray(value)
            damaged[byte] ^= 1 << bit
            assert isinstance(fetched(name, damaged, signer), Reason), (byte, bit)


@given(names, st.sampled_from([None, SIGNER]), st.data())
def test_a_flipped_bit_anywhere_is_refused(name: str, signer: Signer | None, data) -> None:
    """In header, payload, tag or trailer."""
    damaged = bytearray(value_of(name, signer))
    bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    assert isinstance(fetched(name, damaged, signer), Reason)


@given(names, st.sampled_from([None, SIGNER]), st.data())
def test_other_lengths_are_refused(name: str, signer: Signer | None, data) -> None:
    """A value cut off anywhere, or with something behind or before it."""
    value = value_of(name, signer)
    length = data.draw(st.integers(0, len(value) - 1))
    more = data.draw(st.binary(min_size=1, max_size=100))
    end = len(value) - (TRAILER_BYTES if signer else 0)
    cut = Reason.TRUNCATED if length < end else Reason.UNSIGNED
    assert read(memoryview(value)[:length], namespace=NAMESPACE, key=KEY, signer=signer) is cut
    assert isinstance(fetched(name, value + more, signer), Reason)
    assert isinstance(fetched(name, more + value, signer), Reason)


def test_the_trailer_of_the_format_document() -> None:
    """Magic, version, zero, key id and a keyed BLAKE3 of all that is before it."""
    value = value_of("plain", SIGNER)
    trailer = value[-48:]
    assert trailer[:16] == b"PGDTRAIL" + bytes([1, 0, 0, 0, 2, 0, 0, 0])
    key = expand(NEW, b"pagoda.seal.blake3-mac.v1\0")
    assert trailer[16:] == blake3(value[:-32], key=key).digest()
    assert value[:-48] == value_of("plain", None)


def test_an_unsigned_value_is_refused_where_a_signature_is_demanded() -> None:
    """Anybody who can write to the store can make a plain value."""
    for name in ENVELOPES:
        assert fetched(name, value_of(name, None), SIGNER) is Reason.UNSIGNED
        assert fetched(name, value_of(name, SIGNER)[:-TRAILER_BYTES], SIGNER) is Reason.UNSIGNED


def test_a_reader_without_a_key_reads_signed_values() -> None:
    """So that signing can be switched on one node at a time."""
    assert fetched("plain", value_of("plain", SIGNER), None) == PAYLOAD


def test_a_reader_without_a_key_refuses_what_is_no_trailer() -> None:
    """48 bytes behind the payload have to be one; other bytes are damage."""
    value = value_of("plain", SIGNER)
    for byte in range(len(value) - TRAILER_BYTES, len(value) - TRAILER_BYTES + 12):
        damaged = bytearray(value)
        damaged[byte] ^= 1
        assert fetched("plain", damaged, None) is Reason.CORRUPT, byte


def test_signing_keys_rotate() -> None:
    """The old key's values are still good; a node without the new key refuses."""
    old = Signer(BEFORE, setting="remote.mac_key_file")
    assert fetched("plain", value_of("plain", old), SIGNER) == PAYLOAD
    assert fetched("plain", value_of("plain", SIGNER), old) is Reason.LOCKED
    other = Signer(Keyring({2: OLD}), setting="remote.mac_key_file")
    assert fetched("plain", value_of("plain", other), SIGNER) is Reason.CORRUPT


FORGERIES = [
    ("generation", 16, 8),
    ("created", 24, 8),
    ("parent", 96, 32),
    ("depth", 128, 4),
    ("tokens", 132, 4),
    ("payload", 256, 16),
]


@pytest.mark.parametrize(("what", "offset", "size"), FORGERIES, ids=[row[0] for row in FORGERIES])
def test_a_forger_without_the_key_is_refused(what: str, offset: int, size: int) -> None:
    """Even one who makes every digest fit; without a signature the same forgery would pass."""
    value = bytearray(value_of("plain", SIGNER))
    value[offset : offset + size] = bytes([0x55]) * size
    value[160:176] = digest(bytes(value[256:-48]))
    value[240:256] = digest(bytes(value[:240]))
    assert fetched("plain", value, SIGNER) is Reason.CORRUPT
    assert not isinstance(fetched("plain", value, None), Reason)


def test_a_trailer_belongs_to_its_value() -> None:
    """Taken from another value of the same writer, it proves nothing."""
    one = value_of("plain", SIGNER)
    two = value_of("plain", SIGNER, kv_like(3001, seed=5))
    assert fetched("plain", one[:-48] + two[-48:], SIGNER) is Reason.CORRUPT


@pytest.mark.parametrize("signer", [None, SIGNER], ids=["plain", "signed"])
def test_a_value_under_another_name_is_refused(signer: Signer | None) -> None:
    """Swapped in the store: intact, signed, and not what was asked for."""
    value = memoryview(value_of("plain", signer))
    other_key, other_namespace = Key(bytes(32)), NamespaceId(bytes(32))
    for namespace, key in ((NAMESPACE, other_key), (other_namespace, KEY)):
        assert read(value, namespace=namespace, key=key, signer=signer) is Reason.MISPLACED


def test_headers_of_slabs_are_no_values() -> None:
    """Bytes copied out of a slab carry a slot and a slab id, and stay there."""
    seal, stored = ENVELOPES["plain"].wrap(seal_for(PAYLOAD), PAYLOAD)
    parts = pieces(replace(seal, generation=1), stored, None)
    header = bytearray(parts[0])
    header[152] = 1
    header[240:] = digest(bytes(header[:240]))
    assert fetched("plain", header + stored, None) is Reason.CORRUPT


def test_a_value_of_a_later_version_is_a_miss() -> None:
    """Nodes of two versions share a store: the older one passes over what it cannot read."""
    value = bytearray(value_of("plain", None))
    value[8] = 2
    value[240:256] = digest(bytes(value[:240]))
    assert fetched("plain", value, None) is Reason.LOCKED


def test_zeros_are_no_value() -> None:
    """A store that gives back blank bytes has given nothing."""
    assert fetched("plain", bytes(4096), None) is Reason.CORRUPT
    assert fetched("plain", b"", None) is Reason.TRUNCATED


def test_without_its_package_signing_is_refused(without_packages: None) -> None:
    """At the start, by the setting that asks for it."""
    with pytest.raises(SettingsError, match=r"pip install 'pagoda-kv\[crypto\]'") as caught:
        Signer(ROTATED, setting="remote.mac_key_file")
    assert caught.value.key == "remote.mac_key_file"
