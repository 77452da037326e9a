"""Envelopes: what is wrapped is unwrapped, and nothing else passes for it."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st
from seal_samples import BEFORE, ENVELOPES, NEW, OLD, ROTATED, kv_like, opened, seal_for

from pagoda.core.errors import CapacityError, SettingsError
from pagoda.core.events import Reason
from pagoda.seal import cipher
from pagoda.seal.digest import digest
from pagoda.seal.envelope import PLAIN, Envelope
from pagoda.seal.header import Encryption, Seal, pack, unpack
from pagoda.seal.keyring import Keyring, expand

SLAB = bytes(16)
SIZES = [0, 1, 2, 3, 15, 16, 17, 31, 4095, 4096, 65537, 368640, 3 * 2**20 + 5]
envelopes = st.sampled_from(sorted(ENVELOPES))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(ENVELOPES))
def test_a_payload_comes_back(name: str, size: int) -> None:
    """Through its header too, whatever the size."""
    payload = kv_like(size)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    read = unpack(pack(seal, slot=3, slab_id=SLAB), slot=3, slab_id=SLAB)
    assert isinstance(read, Seal)
    assert read == seal
    assert seal.stored_bytes == len(stored) <= size
    assert opened(ENVELOPES[name], read, stored) == payload


@given(envelopes, st.binary(max_size=200), st.integers(1, 60))
def test_any_payload_comes_back(name: str, piece: bytes, times: int) -> None:
    payload = memoryview(piece * times)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    assert opened(ENVELOPES[name], seal, stored) == payload


def test_the_codec_id_says_what_was_done() -> None:
    """A payload that does not shrink is stored raw by every envelope."""
    shrinks, noise = kv_like(8192), memoryview(np.random.default_rng(2).bytes(8192))
    codecs = {
        name: [envelope.wrap(seal_for(p), p)[0].codec for p in (shrinks, noise)]
        for name, envelope in ENVELOPES.items()
    }
    assert codecs == {"plain": [0, 0], "lossless": [1, 0], "encrypted": [2, 2], "both": [3, 2]}


def test_raw_without_keys_is_plain() -> None:
    """One object, which callers may know by identity."""
    assert Envelope.of("raw", None, setting="drive") is PLAIN


def test_plain_copies_nothing() -> None:
    """Wrapping hands the payload itself on; a block read into its place is only verified."""
    payload = memoryview(bytearray(kv_like(4096)))
    seal, stored = PLAIN.wrap(seal_for(payload), payload)
    assert stored is payload
    assert seal == seal_for(payload, payload_digest=digest(payload))
    assert PLAIN.unwrap(seal, payload.toreadonly(), memoryview(bytearray(4096))) is None
    in_place = payload.toreadonly()  # a write to it would raise
    assert PLAIN.unwrap(seal, in_place, in_place) is None


@pytest.mark.parametrize("size", [1, 14, 15, 16, 4096, 100_001])
def test_an_encrypted_block_is_decrypted_in_place(size: int) -> None:
    """Read straight to where it belongs, through the same view or another one."""
    payload = kv_like(size)
    seal, stored = ENVELOPES["encrypted"].wrap(seal_for(payload), payload)
    for through in (slice(None), slice(0, size)):
        place = memoryview(bytearray(stored))
        read = place if through == slice(None) else place[through]
        assert ENVELOPES["encrypted"].unwrap(seal, read, place) is None
        assert place == payload


@pytest.mark.parametrize("name", ["plain", "encrypted"])
def test_views_that_overlap_are_told_apart(name: str) -> None:
    """Bytes that were read one place beside where they belong."""
    payload = kv_like(4096)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    memory = memoryview(bytearray(bytes(stored) + b"\0"))
    assert ENVELOPES[name].unwrap(seal, memory[:-1], memory[1:]) is None
    assert memory[1:] == payload


@given(envelopes, st.integers(1, 5000), st.data())
def test_a_flipped_bit_is_refused(name: str, size: int, data: st.DataObject) -> None:
    """Anywhere in the stored bytes."""
    payload = kv_like(size)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    damaged = bytearray(stored)
    damaged[bit // 8] ^= 1 << bit % 8
    assert opened(ENVELOPES[name], seal, damaged) is Reason.CORRUPT


@pytest.mark.parametrize("name", sorted(ENVELOPES))
def test_a_flipped_bit_of_the_header_is_refused(name: str) -> None:
    """Every one of its 2,048 bits, tag, nonce, salt and key id included."""
    payload = kv_like(5000)
    seal, _ = ENVELOPES[name].wrap(seal_for(payload), payload)
    header = pack(seal, slot=3, slab_id=SLAB)
    for bit in range(len(header) * 8):
        damaged = bytearray(header)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not isinstance(unpack(bytes(damaged), slot=3, slab_id=SLAB), Seal), bit


@given(envelopes, st.integers(1, 5000), st.data())
def test_other_lengths_are_refused(name: str, size: int, data: st.DataObject) -> None:
    """Cut off anywhere, or with bytes behind it."""
    payload = kv_like(size)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    length = data.draw(st.integers(0, len(stored) - 1))
    more = data.draw(st.binary(min_size=1, max_size=20))
    assert opened(ENVELOPES[name], seal, stored[:length]) is Reason.TRUNCATED
    assert opened(ENVELOPES[name], seal, bytes(stored) + more) is Reason.CORRUPT


@pytest.mark.parametrize("name", sorted(ENVELOPES))
@pytest.mark.parametrize("size", [0, 4095, 4097, 2**20])
def test_a_block_of_another_size_is_refused(name: str, size: int) -> None:
    """The reader knows how large its blocks are; the seal does not decide what is written."""
    payload = kv_like(4096)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    into = memoryview(bytearray(size))
    assert ENVELOPES[name].unwrap(seal, stored, into) is Reason.MISPLACED
    assert into == bytes(size)


@pytest.mark.parametrize("name", ["lossless", "encrypted", "both"])
def test_forged_sizes_are_refused(name: str) -> None:
    """A seal, intact by its digest, that states another size than the payload has."""
    payload = kv_like(4096)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    for raw_bytes in (4095, 4097, 2**20):
        assert opened(ENVELOPES[name], replace(seal, raw_bytes=raw_bytes), stored) is Reason.CORRUPT


@pytest.mark.parametrize("name", ["lossless", "both"])
def test_more_bytes_than_the_seal_states_are_refused(name: str) -> None:
    """Even if the digest is that of all of them."""
    payload = kv_like(4096)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    lie = replace(seal, stored_bytes=seal.stored_bytes - 1)
    assert opened(ENVELOPES[name], lie, stored) is Reason.CORRUPT


FORGED = {
    "namespace": bytes(32),
    "key": bytes(32),
    "parent": bytes(32),
    "depth": 5,
    "tokens": 15,
}


@pytest.mark.parametrize("name", ["encrypted", "both"])
@pytest.mark.parametrize("field", sorted(FORGED))
def test_an_encrypted_payload_belongs_to_its_block(name: str, field: str) -> None:
    """A header rewritten for another block, with fitting digests, does not fit the tag."""
    payload = kv_like(4096)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    forged = replace(seal, **{field: FORGED[field]})
    assert opened(ENVELOPES[name], forged, stored) is Reason.CORRUPT


@pytest.mark.parametrize("name", ["encrypted", "both"])
def test_an_encrypted_payload_may_move(name: str) -> None:
    """Slot, slab and generation say where it lies, and change when it is moved as it is."""
    payload = kv_like(4096)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    moved = unpack(pack(replace(seal, generation=9), slot=8, slab_id=SLAB), slot=8, slab_id=SLAB)
    assert isinstance(moved, Seal)
    assert opened(ENVELOPES[name], moved, stored) == payload


@pytest.mark.parametrize("name", ["encrypted", "both"])
@pytest.mark.parametrize("field", ["salt", "nonce", "tag"])
def test_every_bit_of_the_encryption_fields_counts(name: str, field: str) -> None:
    """Even for someone who makes the digests fit."""
    payload = kv_like(100)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    assert seal.encryption is not None
    honest: bytes = getattr(seal.encryption, field)
    for bit in range(len(honest) * 8):
        forged = bytearray(honest)
        forged[bit // 8] ^= 1 << bit % 8
        encryption = replace(seal.encryption, **{field: bytes(forged)})
        lie = replace(seal, encryption=encryption)
        assert opened(ENVELOPES[name], lie, stored) is Reason.CORRUPT


@given(st.sampled_from(["encrypted", "both"]), st.integers(1, 600), st.data())
def test_forged_ciphertext_is_refused(name: str, size: int, data: st.DataObject) -> None:
    """Whoever can write to the medium can compute digests; the tag is what stops them."""
    payload = kv_like(size)
    seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    forged = bytearray(stored)
    forged[bit // 8] ^= 1 << bit % 8
    lie = replace(seal, payload_digest=digest(bytes(forged)))
    assert opened(ENVELOPES[name], lie, forged) is Reason.CORRUPT


@pytest.mark.parametrize("name", sorted(ENVELOPES))
def test_swapped_headers_are_refused(name: str) -> None:
    """The seal of one block does not open the bytes of another."""
    one, two = kv_like(4096, seed=1), kv_like(4096, seed=2)
    first, stored_one = ENVELOPES[name].wrap(seal_for(one, key=bytes([7]) * 32), one)
    second, stored_two = ENVELOPES[name].wrap(seal_for(two, key=bytes([8]) * 32), two)
    assert opened(ENVELOPES[name], first, stored_two) in (Reason.CORRUPT, Reason.TRUNCATED)
    assert opened(ENVELOPES[name], second, stored_one) in (Reason.CORRUPT, Reason.TRUNCATED)


def test_keys_rotate() -> None:
    """What the old key sealed is still read; the old keyring cannot read what the new sealed."""
    old = Envelope.of("lossless", BEFORE, setting="drive")
    new = Envelope.of("lossless", ROTATED, setting="drive")
    payload = kv_like(4096)
    before, stored_before = old.wrap(seal_for(payload), payload)
    after, stored_after = new.wrap(seal_for(payload), payload)
    assert (before.encryption.key_id, after.encryption.key_id) == (1, 2)
    assert opened(new, before, stored_before) == payload
    assert opened(new, after, stored_after) == payload
    assert opened(old, after, stored_after) is Reason.LOCKED
    assert opened(PLAIN, after, stored_after) is Reason.LOCKED


def test_a_wrong_key_under_the_right_id_is_refused() -> None:
    """Two files that name different keys alike do not read each other's blocks."""
    payload = kv_like(4096)
    seal, stored = ENVELOPES["encrypted"].wrap(seal_for(payload), payload)
    other = Envelope.of("raw", Keyring({2: OLD}), setting="drive")
    assert opened(other, seal, stored) is Reason.CORRUPT


def test_a_plain_block_is_refused_where_encryption_is_on() -> None:
    """It could have been planted: anybody can make one."""
    payload = kv_like(4096)
    for name in ("plain", "lossless"):
        seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
        assert opened(ENVELOPES["encrypted"], seal, stored) is Reason.UNSIGNED


def test_refusals_are_known_from_the_seal_alone() -> None:
    """A scan or a look-up need not read a payload that it could not open."""
    payload = kv_like(4096)
    seals = {n: e.wrap(seal_for(payload), payload)[0] for n, e in ENVELOPES.items()}
    found = {(n, s): ENVELOPES[n].refusal(seals[s]) for n in ENVELOPES for s in seals}
    assert {pair: reason for pair, reason in found.items() if reason is not None} == {
        ("plain", "encrypted"): Reason.LOCKED,
        ("plain", "both"): Reason.LOCKED,
        ("lossless", "encrypted"): Reason.LOCKED,
        ("lossless", "both"): Reason.LOCKED,
        ("encrypted", "plain"): Reason.UNSIGNED,
        ("encrypted", "lossless"): Reason.UNSIGNED,
        ("both", "plain"): Reason.UNSIGNED,
        ("both", "lossless"): Reason.UNSIGNED,
    }
    unknown = replace(seals["both"], encryption=replace(seals["both"].encryption, key_id=3))
    assert ENVELOPES["both"].refusal(unknown) is Reason.LOCKED


def test_the_ciphertext_is_aes_256_gcm_as_documented() -> None:
    """Decrypted by hand: block key by HKDF from the salt, nonce and tag from the header."""
    payload = kv_like(1000)
    seal, stored = ENVELOPES["encrypted"].wrap(seal_for(payload), payload)
    found = seal.encryption
    assert found is not None
    assert bytes(payload[:32]) not in bytes(stored)
    master = expand(NEW, b"pagoda.seal.aes-256-gcm.v1\0")
    key = expand(master, b"pagoda.seal.block.v1\0" + found.salt)
    header = pack(seal, slot=3, slab_id=SLAB)
    associated = b"pagoda.aead.v1\0\0" + header[10:12] + header[192:196] + header[32:152]
    plain = AESGCM(key).decrypt(found.nonce, bytes(stored) + found.tag, associated)
    assert plain == payload


def drawn(envelope: Envelope, payload: memoryview) -> Encryption:
    encryption = envelope.wrap(seal_for(payload), payload)[0].encryption
    assert encryption is not None
    return encryption


def test_no_two_blocks_share_a_key_or_a_nonce() -> None:
    """The same block sealed again and again, by two envelopes, draws anew each time."""
    payload = kv_like(64)
    two = [ENVELOPES["encrypted"], Envelope.of("raw", ROTATED, setting="drive")]
    found = [drawn(envelope, payload) for envelope in two for _ in range(500)]
    assert len({encryption.salt for encryption in found}) == 1000
    assert len({encryption.nonce for encryption in found}) == 1000


def test_a_forked_process_draws_other_nonces() -> None:
    """Both copies of a process go on sealing: nothing that a fork copies may decide."""
    payload = kv_like(64)
    drawn(ENVELOPES["encrypted"], payload)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, drawn(ENVELOPES["encrypted"], payload).salt)
        os._exit(0)
    mine = drawn(ENVELOPES["encrypted"], payload).salt
    os.waitpid(child, 0)
    theirs = os.read(reading, 16)
    os.close(reading)
    os.close(writing)
    assert len(theirs) == 16
    assert theirs != mine


@pytest.mark.parametrize("name", sorted(ENVELOPES))
def test_threads_share_an_envelope(name: str) -> None:
    """I/O threads wrap and unwrap at the same time."""

    def trip(seed: int) -> bool:
        payload = kv_like(40_000 + seed, seed=seed)
        seal, stored = ENVELOPES[name].wrap(seal_for(payload), payload)
        return opened(ENVELOPES[name], seal, stored) == payload

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(trip, range(64)))


def test_a_payload_beyond_the_ciphers_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typed error that names both sizes, before anything is written."""
    monkeypatch.setattr(cipher, "MOST_BYTES", 4095)
    payload = kv_like(4096)
    with pytest.raises(CapacityError) as caught:
        ENVELOPES["encrypted"].wrap(seal_for(payload), payload)
    assert (caught.value.asked_bytes, caught.value.limit_bytes) == (4096, 4095)


def test_without_its_package_encryption_is_refused(without_packages: None) -> None:
    """At the start, by the setting that asks for it."""
    with pytest.raises(SettingsError, match=r"pip install 'pagoda-kv\[crypto\]'") as caught:
        Envelope.of("raw", ROTATED, setting="drive")
    assert caught.value.key == "drive.key_file"


def test_blocks_of_a_missing_codec_are_misses(without_packages: None) -> None:
    """A slab written elsewhere is opened; what this process cannot read is refused."""
    payload = kv_like(4096)
    assert opened(PLAIN, *PLAIN.wrap(seal_for(payload), payload)) == payload
    coded = seal_for(payload, codec=1, stored_bytes=10, payload_digest=digest(bytes(10)))
    assert opened(PLAIN, coded, bytes(10)) is Reason.LOCKED


def test_plain_blocks_need_no_optional_package() -> None:
    """The seal's modules load without cryptography, blake3 and zstandard."""
    code = (
        "import sys\n"
        "for name in ('cryptography', 'blake3', 'zstandard'): sys.modules[name] = None\n"
        "import pagoda.seal.envelope, pagoda.seal.keyring, pagoda.seal.value\n"
        "print('imported')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "imported\n"
