"""Many headers at once: what a scan of a million slots needs (see seal.header for one)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagoda.core.identity import DIGEST_BYTES as KEY_BYTES
from pagoda.seal.digest import DIGEST_BYTES, digest
from pagoda.seal.header import CODEC_RAW, HEADER_BYTES, MAGIC, VERSION, Damaged, Seal, unpack

# The byte table of docs/design/format.md.
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u2"),
        ("codec", "<u2"),
        ("flags", "<u4"),
        ("generation", "<u8"),
        ("created_ms", "<u8"),
        ("namespace", f"V{KEY_BYTES}"),
        ("key", f"V{KEY_BYTES}"),
        ("parent", f"V{KEY_BYTES}"),
        ("depth", "<u4"),
        ("tokens", "<u4"),
        ("raw_bytes", "<u8"),
        ("stored_bytes", "<u8"),
        ("slot", "<u8"),
        ("payload_digest", f"V{DIGEST_BYTES}"),
        ("slab_id", "V16"),
        ("reserved", "<u8", 6),
        ("digest", f"V{DIGEST_BYTES}"),
    ]
)
assert HEADER.itemsize == HEADER_BYTES, "the table fills a header"

Headers = NDArray[np.void]  # of dtype HEADER


@dataclass(frozen=True, slots=True)
class Sifted:
    """A run of headers, sorted by what they are.

    `plain` are sound headers of raw payloads, as they lie on the medium; `others` sound
    headers of any other codec, with their slots; `damaged` the slots of all the rest.
    """

    plain: Headers
    others: list[tuple[int, Seal]]
    damaged: list[int]


def sift(slots: Sequence[int], headers: Sequence[bytes], *, slab_id: bytes) -> Sifted:
    """Check headers found at `slots` of the slab `slab_id`; none of them is empty."""
    table: Headers = np.frombuffer(b"".join(headers), dtype=HEADER)
    sound = _sound(table, headers, slots, slab_id)
    others: list[tuple[int, Seal]] = []
    damaged: list[int] = []
    for index in np.flatnonzero(~sound).tolist():
        seal = unpack(headers[index], slot=slots[index], slab_id=slab_id)
        if isinstance(seal, Damaged):
            damaged.append(slots[index])
        elif seal is not None:
            others.append((slots[index], seal))
    return Sifted(table[sound], others, damaged)


def _sound(
    table: Headers, headers: Sequence[bytes], slots: Sequence[int], slab_id: bytes
) -> NDArray[np.bool_]:
    """Which headers say in every field that they are plain, whole, and in their place."""
    body = HEADER_BYTES - DIGEST_BYTES
    digests = np.frombuffer(b"".join([digest(header[:body]) for header in headers]), dtype="V16")
    sound: NDArray[np.bool_] = (
        (table["digest"] == digests)
        & (table["magic"] == MAGIC)
        & (table["version"] == VERSION)
        & (table["codec"] == CODEC_RAW)
        & (table["flags"] == 0)
        & (table["raw_bytes"] == table["stored_bytes"])
        & (table["slot"] == np.asarray(slots, dtype=np.uint64))
        & (table["slab_id"] == np.frombuffer(slab_id, dtype="V16"))
        & ~table["reserved"].any(axis=1)
    )
    return sound
