"""The lab's blocks: payloads that say which version of which key they are."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from pagoda.core.identity import ROOT, Key, NamespaceId
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.writer import Block

BLOCK_BYTES = 16 << 10
NAMESPACE = NamespaceId(b"pagoda lab crash".ljust(32, b"."))
NOBODYS = b"\xdd\0"  # bytes of a buffer that holds no block: as it was, or zeroed

_VERSION_BYTES = 8
_SHORT_BY = 1000  # what a shorter block lacks: it ends within a page


def key_of(chain: int, depth: int) -> Key:
    """The name of a chain's block."""
    return Key(hashlib.sha256(f"{chain}/{depth}".encode()).digest())


@lru_cache(maxsize=4096)
def payload_of(key: Key, version: int) -> bytes:
    """The bytes of a version of a block: its number, then noise. Every fourth is shorter."""
    number = version.to_bytes(_VERSION_BYTES, "little")
    size_bytes = BLOCK_BYTES - (_SHORT_BY if version % 4 == 0 else 0)
    return number + hashlib.shake_128(key + number).digest(size_bytes - _VERSION_BYTES)


def version_of(payload: memoryview) -> int:
    """Which version a payload says it is."""
    return int.from_bytes(payload[:_VERSION_BYTES], "little")


def is_whole(key: Key, payload: memoryview) -> bool:
    """Whether a buffer begins with all the bytes of the version that it says it is."""
    truth = payload_of(key, version_of(payload))
    return payload[: len(truth)] == truth


def buffer() -> memoryview:
    """Page-aligned memory for one block, filled with nobody's bytes."""
    view = memoryview(aligned_buffer(BLOCK_BYTES))[:BLOCK_BYTES]
    view[:] = NOBODYS[:1] * BLOCK_BYTES
    return view


def blocks_of(chain: int, length: int, version: int) -> list[Block]:
    """A version of the first blocks of a chain, to store."""
    keys = [key_of(chain, depth) for depth in range(length)]
    return [
        Block(
            namespace=NAMESPACE,
            key=key,
            parent=keys[depth - 1] if depth else ROOT,
            depth=depth,
            tokens=16,
            payload=_aligned(payload_of(key, version)),
        )
        for depth, key in enumerate(keys)
    ]


def _aligned(payload: bytes) -> memoryview:
    view = memoryview(aligned_buffer(len(payload)))[: len(payload)]
    view[:] = payload
    return view
