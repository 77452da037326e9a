"""The superblock: one page that says where everything lies in a slab (docs/design/format.md).

It is written twice, at the front and in the page before the payloads, so that a damaged
page does not cost the slab.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

from pagoda.seal.digest import DIGEST_BYTES, digest
from pagoda.seal.header import HEADER_BYTES

MAGIC = b"PGDASLAB"
VERSION = 1
PAGE_BYTES = 4096
STRIPE_BYTES = 4 << 20

_FIELDS = struct.Struct("<8sIIQQQQ16sQ")
_BODY_BYTES = PAGE_BYTES - DIGEST_BYTES


class Flaw(Enum):
    """Why a page is no superblock."""

    FOREIGN = "foreign"  # not a slab
    VERSION = "version"  # a sound superblock of another version
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where things lie in a slab of `slots` slots of `slot_bytes` (a multiple of 4 KiB)."""

    slots: int
    slot_bytes: int
    slab_id: bytes

    @property
    def table_offset(self) -> int:
        return PAGE_BYTES

    @property
    def payload_offset(self) -> int:
        """The next stripe that leaves a page for the superblock's copy before it."""
        end = self.table_offset + self.slots * HEADER_BYTES + PAGE_BYTES
        return -(-end // STRIPE_BYTES) * STRIPE_BYTES

    @property
    def copy_offset(self) -> int:
        return self.payload_offset - PAGE_BYTES

    @property
    def size_bytes(self) -> int:
        return self.payload_offset + self.slots * self.slot_bytes

    def header_at(self, slot: int) -> int:
        """File offset of a slot's header."""
        return self.table_offset + slot * HEADER_BYTES

    def payload_at(self, slot: int) -> int:
        """File offset of a slot's payload."""
        return self.payload_offset + slot * self.slot_bytes


def pack(layout: Layout, *, created_ms: int) -> bytes:
    """The page."""
    fields = _FIELDS.pack(
        MAGIC,
        VERSION,
        HEADER_BYTES,
        layout.slots,
        layout.slot_bytes,
        layout.table_offset,
        layout.payload_offset,
        layout.slab_id,
        created_ms,
    )
    body = fields.ljust(_BODY_BYTES, b"\0")
    return body + digest(body)


def unpack(page: bytes) -> Layout | Flaw:
    """Read a page that should be a superblock."""
    if len(page) < PAGE_BYTES or page[: len(MAGIC)] != MAGIC:
        return Flaw.FOREIGN
    fields = _FIELDS.unpack_from(page)
    if digest(page[:_BODY_BYTES]) != page[_BODY_BYTES:]:
        return Flaw.DAMAGED
    if fields[1] != VERSION:
        return Flaw.VERSION
    layout = Layout(slots=fields[3], slot_bytes=fields[4], slab_id=fields[7])
    stated = (fields[2], fields[5], fields[6])
    if stated != (HEADER_BYTES, layout.table_offset, layout.payload_offset):
        return Flaw.DAMAGED
    return layout


def version_of(page: bytes) -> int:
    """The version that a page states."""
    return int(_FIELDS.unpack_from(page)[1])
