"""A block as one value of a shared store: header, payload, and a trailer if it is signed.

The header states the payload's length, so the value's length says whether a trailer follows:
any other length is refused. A header in a value belongs to no slot and no slab: both are zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.core.events import Reason
from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.header import HEADER_BYTES, Damaged, Seal, pack, unpack
from pagoda.seal.mac import TRAILER_BYTES, Signer, trailer_key

OVERHEAD_BYTES = HEADER_BYTES + TRAILER_BYTES  # the most that a value adds to its payload
_SLOT = 0
_SLAB_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class Value:
    """What a value holds: its seal, and the payload as an Envelope stored it."""

    seal: Seal
    stored: memoryview


def pieces(seal: Seal, stored: memoryview, signer: Signer | None) -> list[memoryview]:
    """The value of what Envelope.wrap returned, in pieces to be joined."""
    parts = [memoryview(pack(seal, slot=_SLOT, slab_id=_SLAB_ID)), stored]
    if signer is not None:
        parts.append(memoryview(signer.trailer(parts)))
    return parts


def read(
    value: memoryview, *, namespace: NamespaceId, key: Key, signer: Signer | None
) -> Value | Reason:
    """Take a value apart, or say why it is refused. Its payload is for Envelope.unwrap to check.

    With a signer, a value without a good trailer is refused. Without one a trailer cannot be
    checked and is passed over: such a reader trusts whoever can write to the store.
    """
    seal = unpack(bytes(value[:HEADER_BYTES]), slot=_SLOT, slab_id=_SLAB_ID)
    if not isinstance(seal, Seal):
        return _refused_header(value, seal)
    end = HEADER_BYTES + seal.stored_bytes
    if len(value) < end:
        return Reason.TRUNCATED
    refusal = _refused_trailer(value[:end], value[end:], signer)
    if refusal is not None:
        return refusal
    if seal.namespace != namespace or seal.key != key:
        return Reason.MISPLACED
    return Value(seal, value[HEADER_BYTES:end])


def _refused_header(value: memoryview, found: Damaged | None) -> Reason:
    if len(value) < HEADER_BYTES:
        return Reason.TRUNCATED
    return Reason.LOCKED if found == Damaged("version") else Reason.CORRUPT


def _refused_trailer(
    signed: memoryview, trailer: memoryview, signer: Signer | None
) -> Reason | None:
    if signer is not None:
        return signer.refusal(signed, trailer)
    plain = len(trailer) == 0 or trailer_key(trailer) is not None
    return None if plain else Reason.CORRUPT
