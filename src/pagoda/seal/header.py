"""The seal: a 256-byte header that binds a payload to its key, place and generation.

docs/design/format.md has the byte table; the layout is final, and an unknown version or
codec is refused, not guessed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.digest import digest

MAGIC = b"PGDBLOCK"
VERSION = 1
HEADER_BYTES = 256
EMPTY = bytes(HEADER_BYTES)  # what an unused place in the table holds

CODEC_RAW = 0
CODEC_LOSSLESS = 1
ENCRYPTED = 2  # added to either id: the codec's output under AES-256-GCM
CODECS = frozenset({CODEC_RAW, CODEC_LOSSLESS, ENCRYPTED | CODEC_RAW, ENCRYPTED | CODEC_LOSSLESS})

SALT_BYTES = 16
NONCE_BYTES = 12
TAG_BYTES = 16

_BODY = struct.Struct("<8sHHIQQ32s32s32sIIQQQ16s16s48s")
_BODY_BYTES = HEADER_BYTES - 16
_ENCRYPTION = struct.Struct("<I12s16s16s")
_UNENCRYPTED = bytes(_ENCRYPTION.size)
assert _BODY.size == _BODY_BYTES, "the header's fields fill all but its own digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """What it takes, beside the key, to decrypt a payload: `key_id` names the master key,
    `salt` selects the block's own key, `nonce` and `tag` are AES-GCM's. Nothing is secret."""

    key_id: int
    salt: bytes
    nonce: bytes
    tag: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What is known of a stored payload. Sizes in bytes, time in ms since the epoch.

    `depth` is the block's position in its chain (0 for a prompt's first block). `encryption`
    is there exactly when `codec` says that the payload is encrypted.
    """

    namespace: NamespaceId
    key: Key
    parent: Key
    depth: int
    tokens: int
    generation: int
    raw_bytes: int
    stored_bytes: int
    payload_digest: bytes
    created_ms: int
    codec: int = CODEC_RAW
    encryption: Encryption | None = None


@dataclass(frozen=True, slots=True)
class Damaged:
    """A header that cannot be trusted; `why` is one word for reports."""

    why: str


def pack(seal: Seal, *, slot: int, slab_id: bytes) -> bytes:
    """The 256 bytes of a header for `slot` of the slab `slab_id` (16 bytes)."""
    body = _BODY.pack(
        MAGIC,
        VERSION,
        seal.codec,
        0,
        seal.generation,
        seal.created_ms,
        seal.namespace,
        seal.key,
        seal.parent,
        seal.depth,
        seal.tokens,
        seal.raw_bytes,
        seal.stored_bytes,
        slot,
        seal.payload_digest,
        slab_id,
        _pack_encryption(seal),
    )
    return body + digest(body)


def unpack(header: bytes, *, slot: int, slab_id: bytes) -> Seal | Damaged | None:
    """Read a header found at `slot`: its seal, None for an empty place, or what is wrong."""
    if header == EMPTY:
        return None
    body, stored = header[:_BODY_BYTES], header[_BODY_BYTES:]
    if digest(body) != stored:
        return Damaged("digest")
    fields = _BODY.unpack(body)
    encryption = _unpack_encryption(fields[16])
    flaw = _flaw(fields, encrypted=encryption is not None)
    if flaw is not None:
        return Damaged(flaw)
    if fields[13] != slot or fields[15] != slab_id:
        return Damaged("misplaced")
    return Seal(
        codec=fields[2],
        generation=fields[4],
        created_ms=fields[5],
        namespace=fields[6],
        key=fields[7],
        parent=fields[8],
        depth=fields[9],
        tokens=fields[10],
        raw_bytes=fields[11],
        stored_bytes=fields[12],
        payload_digest=fields[14],
        encryption=encryption,
    )


def _flaw(fields: tuple[Any, ...], *, encrypted: bool) -> str | None:
    """What no writer of this version says in a header, wherever it lies."""
    magic, version, codec, flags = fields[:4]
    if magic != MAGIC or version != VERSION or codec not in CODECS:
        return "version"
    if flags != 0 or encrypted != bool(codec & ENCRYPTED):
        return "reserved"
    raw_bytes, stored_bytes = fields[11:13]
    unshrunk = codec & ~ENCRYPTED == CODEC_RAW  # and a codec that shrinks nothing is not used
    fits = stored_bytes == raw_bytes if unshrunk else stored_bytes < raw_bytes
    return None if fits else "sizes"


def _pack_encryption(seal: Seal) -> bytes:
    found = seal.encryption
    assert (found is not None) == bool(seal.codec & ENCRYPTED), "codec and encryption agree"
    if found is None:
        return _UNENCRYPTED
    return _ENCRYPTION.pack(found.key_id, found.nonce, found.tag, found.salt)


def _unpack_encryption(data: bytes) -> Encryption | None:
    """None where all 48 bytes are zero. Key id 0 does not exist: other bytes with it are read
    here, and refused by whoever looks for the key."""
    if data == _UNENCRYPTED:
        return None
    key_id, nonce, tag, salt = _ENCRYPTION.unpack(data)
    return Encryption(key_id=key_id, salt=salt, nonce=nonce, tag=tag)
