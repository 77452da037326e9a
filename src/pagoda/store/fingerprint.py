"""The weights fingerprint: 32 bytes made from the weights' content, never from a name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from xxhash import xxh3_128

from pagoda.core.errors import ModelNotFound

_DOMAIN = b"pagoda.weights.v1\0"
_PIECE_BYTES = 8 << 20


def weights_fingerprint(directory: Path) -> bytes:
    """SHA-256 over the sizes and XXH3-128 digests of all safetensors files, in order of name.

    Every byte is read, at the speed of the page cache; two directories with equal weights
    have equal fingerprints whatever they are called. XXH3 is enough here: weights come from
    the operator, not from a tenant who would gain from a collision. Raises ModelNotFound.
    """
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ModelNotFound(f"no *.safetensors in {directory}", path=str(directory))
    total = hashlib.sha256(_DOMAIN)
    for file in files:
        total.update(file.stat().st_size.to_bytes(8, "little"))
        total.update(_file_digest(file))
    return total.digest()


def _file_digest(file: Path) -> bytes:
    digest = xxh3_128()
    piece = bytearray(_PIECE_BYTES)
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(piece):
            digest.update(memoryview(piece)[:count])
    return digest.digest()
