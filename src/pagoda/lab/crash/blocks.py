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


def key_of(chain: int, depth: int) -> Key:
    """The name of a chain's block."""
    return Key(hashlib.sha256(f"{chain}/{depth}".encode()).digest())


@lru_cache(maxsize=4096)
def payload_of(key: Key, version: int) -> bytes:
    """The bytes of a version of a block: its number, then noise."""
    number = version.to_bytes(_VERSION_BYTES, "little")
    return number + hashlib.shake_128(key + number).digest(BLOCK_BYTES - _VERSION_BYTES)


def version_of(payload: memoryview) -> int:
    """Which version a payload says it is."""
    return int.from_bytes(payload[:_VERSION_BYTES], "little")


def is_whole(key: Key, payload: memoryview) -> bool:
    """Whether a buffer holds just the bytes of the version that it says it is."""
    return payload == payload_of(key, version_of(payload))


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
