"""A drive of a million blocks that takes no room: sound headers over holes.

Every payload is a hole, so that it reads as zeros; each header seals just that under a key of
its own. What an engine does at a restart is then all there: the table is read and checked, and
any block could be restored.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagoda.core.identity import DIGEST_BYTES as KEY_BYTES
from pagoda.seal.digest import DIGEST_BYTES, digest
from pagoda.seal.header import HEADER_BYTES, MAGIC, VERSION
from pagoda.seal.headers import HEADER, Headers
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.store import Store
from pagoda.tiers.drive import superblock
from pagoda.tiers.drive.slab import SLAB_NAME, read_layout
from pagoda.tiers.drive.superblock import PAGE_BYTES, Layout
from pagoda.tiers.drive.tier import DriveConfig, DriveTier
from pagoda.tiers.sealed import SealedTier

CHAIN = 64  # blocks of a prefix
_PIECE_SLOTS = 1 << 16
_CREATED_MS = 1_800_000_000_000
_BODY_BYTES = HEADER_BYTES - DIGEST_BYTES


def make_sparse_slab(directory: Path, *, slots: int, seed: int) -> Layout:
    """Make a slab of `slots` slots of a page in `directory`, each with a committed block."""
    rng = np.random.default_rng(seed)
    layout = Layout(slots=slots, slot_bytes=PAGE_BYTES, slab_id=rng.bytes(16))
    page = superblock.pack(layout, created_ms=_CREATED_MS)
    path = directory / SLAB_NAME
    path.touch(0o600, exist_ok=False)
    with path.open("r+b") as file:
        file.write(page)
        for first in range(0, slots, _PIECE_SLOTS):
            numbers = np.arange(first, min(first + _PIECE_SLOTS, slots), dtype=np.uint64)
            file.write(_sealed(_headers(numbers, layout, rng)))
        file.seek(layout.copy_offset)
        file.write(page)
        file.truncate(layout.size_bytes)
    return layout


def open_slab(directory: Path) -> Store:
    """A store over such a slab, its index rebuilt as at a restart. Raises TierError."""
    layout = read_layout(directory / SLAB_NAME)
    drive = DriveTier(
        DriveConfig(
            directory=directory,
            capacity_bytes=layout.size_bytes,
            slot_bytes=layout.slot_bytes,
            free_floor_bytes=0,
        )
    )
    executor = ThreadExecutor(load_threads=1, store_threads=1)
    store = Store([[SealedTier(drive)]], runtime=Runtime(executor=executor))
    store.rebuild()
    return store


def _headers(numbers: NDArray[np.uint64], layout: Layout, rng: np.random.Generator) -> Headers:
    """Headers of consecutive slots, their own digests still to be filled in."""
    table: Headers = np.zeros(len(numbers), dtype=HEADER)
    table["magic"] = MAGIC
    table["version"] = VERSION
    table["created_ms"] = _CREATED_MS + numbers // CHAIN
    table["namespace"] = np.void(digest(b"pagoda bench index") * 2)
    table["key"] = np.frombuffer(rng.bytes(len(numbers) * KEY_BYTES), dtype=f"V{KEY_BYTES}")
    table["depth"] = numbers % CHAIN
    table["parent"][1:] = table["key"][:-1]
    table["parent"][table["depth"] == 0] = np.void(bytes(KEY_BYTES))
    table["tokens"] = 16
    table["raw_bytes"] = table["stored_bytes"] = layout.slot_bytes
    table["slot"] = numbers
    table["payload_digest"] = np.void(digest(bytes(layout.slot_bytes)))
    table["slab_id"] = np.void(layout.slab_id)
    return table


def _sealed(table: Headers) -> bytes:
    """The headers' bytes, each with the digest of the rest of it."""
    rows = table.view(np.uint8).reshape(len(table), HEADER_BYTES)
    data = rows.tobytes()
    digests = b"".join(
        [digest(data[place : place + _BODY_BYTES]) for place in range(0, len(data), HEADER_BYTES)]
    )
    rows[:, _BODY_BYTES:] = np.frombuffer(digests, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    return rows.tobytes()
