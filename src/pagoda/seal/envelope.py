"""From a payload to the bytes that are stored, and back: codec, encryption and digest.

    wrap      payload → codec → AES-256-GCM → digest of the result
    unwrap    digest → AES-256-GCM → codec → payload

The digest comes first when reading: it finds accidents at memory speed, before anything
works on damaged bytes. A step that is not asked for costs nothing; `PLAIN` copies nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pagoda.core.errors import SettingsError
from pagoda.core.events import Reason
from pagoda.seal.codec import RAW, Codec, codec_named, codec_of
from pagoda.seal.digest import digest
from pagoda.seal.header import ENCRYPTED, Seal

if TYPE_CHECKING:
    from pagoda.seal.cipher import Cipher
    from pagoda.seal.keyring import Keyring


@dataclass(frozen=True, slots=True)
class Envelope:
    """How blocks are stored. Without `cipher` nothing encrypted can be read; with one, nothing
    else is: a plain block could have been planted."""

    codec: Codec = RAW
    cipher: Cipher | None = None

    @classmethod
    def of(cls, codec: str, keyring: Keyring | None, *, setting: str) -> Envelope:
        """The envelope of a tier's settings; `setting` is its section ("drive"), for errors.
        Raises SettingsError for an unknown codec or a package that is not installed."""
        chosen = codec_named(codec, setting=f"{setting}.codec")
        if keyring is None:
            return PLAIN if chosen is RAW else cls(chosen)
        try:
            from pagoda.seal.cipher import Cipher  # noqa: PLC0415 - its package is optional
        except ModuleNotFoundError:
            key = f"{setting}.key_file"
            raise SettingsError(
                "encryption needs the package cryptography",
                key=key,
                source=key,
                remedy="pip install 'pagoda-kv[crypto]'",
            ) from None
        return cls(chosen, Cipher(keyring))

    def wrap(self, seal: Seal, payload: memoryview) -> tuple[Seal, memoryview]:
        """The seal completed, and the bytes to store: `payload` itself when nothing changes it.

        A payload that the codec cannot shrink is stored raw.
        """
        assert len(payload) == seal.raw_bytes, "the seal states the payload's size"
        encoded = self.codec.encode(payload)
        stored = payload if encoded is None else encoded
        codec = RAW.id if encoded is None else self.codec.id
        encryption = None
        if self.cipher is not None:
            codec |= ENCRYPTED
            stated = replace(seal, codec=codec, stored_bytes=len(stored))
            encryption, stored = self.cipher.encrypt(stated, stored)
        sealed = replace(
            seal,
            codec=codec,
            stored_bytes=len(stored),
            payload_digest=digest(stored),
            encryption=encryption,
        )
        return sealed, stored

    def refusal(self, seal: Seal) -> Reason | None:
        """Why no block with this seal can be read here, whatever its bytes; None if it can."""
        if self.cipher is not None and seal.encryption is None:
            return Reason.UNSIGNED
        if seal.encryption is not None and not self._has_key(seal.encryption.key_id):
            return Reason.LOCKED
        return Reason.LOCKED if codec_of(seal.codec & ~ENCRYPTED) is None else None

    def unwrap(self, seal: Seal, stored: memoryview, into: memoryview) -> Reason | None:
        """Verify `stored` and fill `into` with the payload; a reason when it is not the block.

        After a reason `into` holds anything, and the caller zeroes it. A block that is stored
        in its own size may be read straight into `into`, which is then given as `stored` as
        well. A wrong `seal.raw_bytes` is refused, not trusted: `into` decides how much is
        written.
        """
        if len(stored) < seal.stored_bytes:
            return Reason.TRUNCATED
        if len(stored) > seal.stored_bytes or digest(stored) != seal.payload_digest:
            return Reason.CORRUPT
        if len(into) != seal.raw_bytes:
            return Reason.MISPLACED
        refusal = self.refusal(seal)
        if refusal is not None:
            return refusal
        if seal.encryption is None:
            return self._decode(seal, stored, into)
        return self._decrypt(seal, stored, into)

    def _decrypt(self, seal: Seal, stored: memoryview, into: memoryview) -> Reason | None:
        assert self.cipher is not None, "refusal() wants a cipher for what is encrypted"
        if seal.codec == ENCRYPTED | RAW.id:
            if len(stored) != len(into):
                return Reason.CORRUPT
            return self.cipher.decrypt(seal, stored, into)
        encoded = memoryview(bytearray(len(stored)))
        return self.cipher.decrypt(seal, stored, encoded) or self._decode(seal, encoded, into)

    def _decode(self, seal: Seal, stored: memoryview, into: memoryview) -> Reason | None:
        codec = codec_of(seal.codec & ~ENCRYPTED)
        assert codec is not None, "refusal() wants the codec"
        return None if codec.decode(stored, into) else Reason.CORRUPT

    def _has_key(self, key_id: int) -> bool:
        return self.cipher is not None and self.cipher.keyring.encryption_key(key_id) is not None


PLAIN = Envelope()
