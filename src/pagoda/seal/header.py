"""The seal: a 256-byte header that binds a payload to its key, place and generation.

docs/design/format.md has the byte table; the layout is final, and an unknown version or
codec is refused, not guessed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.digest import digest

MAGIC = b"PGDBLOCK"
VERSION = 1
HEADER_BYTES = 256
EMPTY = bytes(HEADER_BYTES)  # what an unused place in the table holds

CODEC_RAW = 0
CODECS = frozenset({CODEC_RAW})

_BODY = struct.Struct("<8sHHIQQ32s32s32sIIQQQ16s16s48x")
_BODY_BYTES = HEADER_BYTES - 16
assert _BODY.size == _BODY_BYTES, "the header's fields fill all but its own digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What is known of a stored payload. Sizes in bytes, time in ms since the epoch.

    `depth` is the block's position in its chain (0 for a prompt's first block).
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
    magic, version, codec = fields[0], fields[1], fields[2]
    if magic != MAGIC or version != VERSION or codec not in CODECS:
        return Damaged("version")
    if fields[13] != slot or fields[15] != slab_id:
        return Damaged("misplaced")
    return Seal(
        codec=codec,
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
    )
