"""AES-256-GCM over a payload, bound to what the payload is.

Nonces. One nonce used twice under one key breaks GCM, and neither counters nor per-process
salts survive a fork, a restored snapshot or a forgotten file. So nothing is remembered:
every block draws 28 random bytes, 16 that derive a key of its own (HKDF-Expand with the
salt) and 12 that are the nonce under it. Random 96-bit nonces alone allow 2³² blocks a key
(NIST SP 800-38D, section 8.3); here both parts would have to collide, 224 bits, and a
master key may seal 2⁶⁴ blocks with a chance of less than 2⁻⁹⁶ that any two share a key and
a nonce. It costs one HMAC and one AES key schedule a block, a few microseconds.

What is authenticated with the payload: namespace, key, parent, depth, tokens, sizes, codec
and key id. Not slot, slab id and generation: they say where a block lies, and leaving them
out lets it move between slots and tiers as it is. Whoever can write to the medium can
therefore put a block back where it once was, or elsewhere: it is found by its key only, and
under one key there is one content. Not the time of its making either, which a copy may restate.
"""

from __future__ import annotations

import os
import struct

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from pagoda.core.errors import CapacityError
from pagoda.core.events import Reason
from pagoda.seal.header import NONCE_BYTES, SALT_BYTES, TAG_BYTES, Encryption, Seal
from pagoda.seal.keyring import Keyring, expand

MOST_BYTES = 2**31 - 1 - TAG_BYTES  # of one payload; OpenSSL counts in ints

_BOUND = struct.Struct("<16sHI32s32s32sIIQQ")
_DOMAIN = b"pagoda.aead.v1\0\0"
_BLOCK_LABEL = b"pagoda.seal.block.v1\0"
_SLACK_BYTES = AES.block_size // 8 - 1  # that update_into wants free behind its output


class Cipher:
    """Encrypts with the current key of `keyring`, decrypts with any. Called from any thread."""

    def __init__(self, keyring: Keyring) -> None:
        self.keyring = keyring

    def encrypt(self, seal: Seal, payload: memoryview) -> tuple[Encryption, memoryview]:
        """Ciphertext of the payload's length, and what the header has to say of it. `seal`
        states codec and sizes as they will be stored."""
        if len(payload) > MOST_BYTES:
            raise CapacityError(
                f"a payload of {len(payload)} bytes is too large to encrypt",
                tier="seal",
                asked_bytes=len(payload),
                limit_bytes=MOST_BYTES,
                remedy="use fewer tokens a block",
            )
        key_id, size = self.keyring.current, len(payload)
        salt, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
        block_key = self._block_key(key_id, salt)
        assert block_key is not None, "the current key is in the keyring"
        sealed = memoryview(bytearray(size + TAG_BYTES))
        AESGCM(block_key).encrypt_into(nonce, payload, bound(seal, key_id), sealed)
        tag = bytes(sealed[size:])
        return Encryption(key_id=key_id, salt=salt, nonce=nonce, tag=tag), sealed[:size]

    def decrypt(self, seal: Seal, stored: memoryview, into: memoryview) -> Reason | None:
        """Fill `into`, of the length of `stored`; after a refusal it holds anything. They may
        be the same memory: the ciphertext is then copied aside, as OpenSSL's buffers must not
        overlap.

        The tag lies in the header, not behind the ciphertext, so this takes the cipher's
        incremental form: AESGCM.decrypt_into would need them joined, a copy of the block.
        """
        assert len(stored) == len(into), "GCM keeps the length"
        found = seal.encryption
        assert found is not None, "only encrypted blocks are decrypted"
        block_key = self._block_key(found.key_id, found.salt)
        if block_key is None:
            return Reason.LOCKED
        if np.may_share_memory(stored, into):
            stored = memoryview(bytes(stored))
        decryptor = BlockCipher(AES(block_key), GCM(found.nonce, found.tag)).decryptor()
        decryptor.authenticate_additional_data(bound(seal, found.key_id))
        body = max(len(stored) - _SLACK_BYTES, 0)
        done = decryptor.update_into(stored[:body], into) if body else 0
        into[done:] = decryptor.update(stored[body:])
        try:
            decryptor.finalize()
        except InvalidTag:
            return Reason.CORRUPT
        return None

    def _block_key(self, key_id: int, salt: bytes) -> bytes | None:
        key = self.keyring.encryption_key(key_id)
        return None if key is None else expand(key, _BLOCK_LABEL + salt)


def bound(seal: Seal, key_id: int) -> bytes:
    """The associated data: 142 bytes, in the order of docs/design/format.md."""
    return _BOUND.pack(
        _DOMAIN,
        seal.codec,
        key_id,
        seal.namespace,
        seal.key,
        seal.parent,
        seal.depth,
        seal.tokens,
        seal.raw_bytes,
        seal.stored_bytes,
    )
