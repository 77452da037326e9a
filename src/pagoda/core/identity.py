"""Names of blocks, made from bytes alone (docs/design/identity.md is the specification).

A namespace is the digest of everything that makes two blocks interchangeable; a key is
the digest of a namespace, the parent's key and the block's token ids. Keys form a chain,
so one key names a whole prefix. Nothing depends on the process, its environment or
`hash()`, and a cryptographic digest keeps a tenant from crafting collisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NewType

import numpy as np

Key = NewType("Key", bytes)
NamespaceId = NewType("NamespaceId", bytes)

DIGEST_BYTES = 32
ROOT = Key(bytes(DIGEST_BYTES))  # the parent of a chain's first block

_NAMESPACE_DOMAIN = b"pagoda.namespace.v1\0"
_BLOCK_DOMAIN = b"pagoda.block.v1\0"
_TOKEN_LIMIT = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """All that makes two blocks interchangeable. Every field is explicit; none is optional.

    `weights` is the fingerprint of the weights' content, never a model's name; `config` the
    canonical text of the model's other settings that its arithmetic depends on. `layout`
    names the order of bytes inside a block, `rope` the canonical text of the rotary
    settings, `scales` how a quantized dtype is scaled ("none" when it is not).
    """

    weights: bytes
    config: str
    layout: str
    dtype: str
    scales: str
    layers: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    rope: str
    adapter: str
    salt: str

    def __post_init__(self) -> None:
        assert len(self.weights) == DIGEST_BYTES, "the weights fingerprint has 32 bytes"
        assert self.block_tokens > 0, "a block holds at least one token"
        assert 0 <= self.tp_rank < self.tp_size, "tp_rank lies in [0, tp_size)"
        assert 0 <= self.pp_rank < self.pp_size, "pp_rank lies in [0, pp_size)"

    def digest(self) -> NamespaceId:
        """The 32-byte SHA-256 of the fields' canonical encoding, in ascending order of name."""
        parts = [_NAMESPACE_DOMAIN]
        for name in sorted(field.name for field in fields(self)):
            parts += (_text(name), _value(getattr(self, name)))
        return NamespaceId(hashlib.sha256(b"".join(parts)).digest())


def chain(
    namespace: NamespaceId, tokens: Sequence[int], *, block_tokens: int, parent: Key = ROOT
) -> list[Key]:
    """Keys of the full blocks of `tokens`, in order; a partial last block has no key.

    `parent` continues a chain: `tokens` then start right behind that block. Token ids are
    unsigned 32-bit; others raise ValueError.
    """
    data = _token_bytes(tokens)
    width = 4 * block_tokens
    head = _BLOCK_DOMAIN + namespace
    count = block_tokens.to_bytes(4, "little")
    keys: list[Key] = []
    for start in range(0, len(data) - width + 1, width):
        digest = hashlib.sha256(head + parent + count + data[start : start + width]).digest()
        parent = Key(digest)
        keys.append(parent)
    return keys


def _token_bytes(tokens: Sequence[int]) -> bytes:
    array = np.asarray(tokens, dtype=np.int64)
    if array.size and (int(array.min()) < 0 or int(array.max()) >= _TOKEN_LIMIT):
        raise ValueError("token ids are unsigned 32-bit integers")
    return array.astype("<u4").tobytes()


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "little") + data


def _value(value: bytes | str | int) -> bytes:
    """One type byte, then the value: length-prefixed bytes or text, or a u64."""
    if isinstance(value, bytes):
        return b"b" + len(value).to_bytes(4, "little") + value
    if isinstance(value, str):
        return b"s" + _text(value)
    return b"i" + value.to_bytes(8, "little")
