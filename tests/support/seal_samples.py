"""Payloads, seals and keys that the seal's tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.envelope import Envelope
from pagoda.seal.header import Seal
from pagoda.seal.keyring import Keyring

NAMESPACE = NamespaceId(bytes([1]) * 32)
KEY = Key(bytes([2]) * 32)
OLD = bytes(range(32))
NEW = bytes(range(100, 132))
BEFORE = Keyring({1: OLD})
ROTATED = Keyring({2: NEW, 1: OLD})
ENVELOPES = {
    "plain": Envelope.of("raw", None, setting="drive"),
    "lossless": Envelope.of("lossless", None, setting="drive"),
    "encrypted": Envelope.of("raw", ROTATED, setting="drive"),
    "both": Envelope.of("lossless", ROTATED, setting="drive"),
}


def kv_like(size_bytes: int, *, seed: int = 0) -> memoryview:
    """Bytes like those of bf16 KV: normal noise, whose high bytes shrink and low bytes do not."""
    noise = np.random.default_rng(seed).standard_normal(size_bytes // 4 + 1, dtype=np.float32)
    elements = np.repeat(noise, 2).view("<u4") >> 16  # the upper half of an fp32 is its bf16
    elements += np.arange(len(elements), dtype=np.uint32) * 2654435761 >> 25
    return memoryview(elements.astype("<u2").tobytes()[:size_bytes])


def seal_for(payload: memoryview, **changes: Any) -> Seal:
    """What a writer knows of `payload` before it is wrapped."""
    seal = Seal(
        namespace=NAMESPACE,
        key=KEY,
        parent=Key(bytes([3]) * 32),
        depth=4,
        tokens=16,
        generation=5,
        raw_bytes=len(payload),
        stored_bytes=len(payload),
        payload_digest=bytes(16),
        created_ms=1_700_000_000_000,
    )
    return replace(seal, **changes)


def opened(envelope: Envelope, seal: Seal, stored: memoryview | bytes) -> Any:
    """The payload that unwrapping gives, or the reason why there is none."""
    into = memoryview(bytearray(seal.raw_bytes))
    reason = envelope.unwrap(seal, memoryview(stored), into)
    return bytes(into) if reason is None else reason
