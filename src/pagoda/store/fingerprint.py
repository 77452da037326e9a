"""The weights fingerprint: 32 bytes made from the weights' content, never from a name.

docs/design/identity.md specifies it, and says what the sampled kind can miss.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xxhash import xxh3_128

from pagoda.core.errors import ModelError
from pagoda.store.fingerprint_cache import FingerprintCache
from pagoda.store.weight_files import Stamp, header_bytes, stamp_of, weight_files

Mode = Literal["full", "sampled"]
_DOMAINS: Mapping[Mode, bytes] = {
    "full": b"pagoda.weights.v1\0",
    "sampled": b"pagoda.weights.sampled.v1\0",
}
_READ_BYTES = 8 << 20
_SAMPLES = 512
_SAMPLE_BYTES = 16 << 10
_SAMPLE_DOMAIN = b"pagoda.sample.v1\0"
# A file changed again within its file system's tick keeps its times; FAT's tick is 2 s.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """32 bytes that name the weights, and the state of the files that they were made from."""

    digest: bytes
    stamps: Mapping[Path, Stamp]

    def confirm(self) -> None:
        """Raises ModelError when a file has changed since: what was loaded meanwhile may not be
        what was digested."""
        for file, stamp in self.stamps.items():
            if stamp_of(file) != stamp:
                raise _changing(file)


def weights_fingerprint(
    path: Path,
    *,
    mode: Mode = "full",
    fallback: Path | None = None,
    now_ns: Callable[[], int] = time.time_ns,
) -> Fingerprint:
    """SHA-256 over the size and the XXH3-128 digest of each weights file, in order of name.

    `full` digests every byte, `sampled` headers and 8 MiB spread over each file. Digests are
    cached beside the weights, or in the directory `fallback`, unless a file is so young that
    its times cannot prove it unchanged. XXH3 is enough: weights come from the operator, not
    from a tenant who would gain from a collision. Raises ModelNotFound, ModelError.
    """
    files = weight_files(path)
    cache = FingerprintCache(path, fallback)
    total = hashlib.sha256(_DOMAINS[mode])
    stamps: dict[Path, Stamp] = {}
    news = False
    for file in files:
        asked_ns = now_ns()
        stamp = stamps[file] = stamp_of(file)
        digest = cache.get(file, stamp, mode)
        if digest is None:
            digest = _digest_of(file, stamp, mode)
            if asked_ns - stamp.changed_ns >= _SETTLED_NS:
                cache.put(file, stamp, {mode: digest})
                news = True
        total.update(stamp.size.to_bytes(8, "little") + digest)
    if news:
        cache.save()
    return Fingerprint(total.digest(), stamps)


def _digest_of(file: Path, stamp: Stamp, mode: Mode) -> bytes:
    """The digest of a file that stays as it is while it is read."""
    try:
        digest = _full_digest(file) if mode == "full" else _sampled_digest(file, stamp.size)
    except OSError as error:
        raise ModelError(f"cannot read {file}: {error.strerror}", path=str(file)) from error
    if stamp_of(file) != stamp:
        raise _changing(file)
    return digest


def _full_digest(file: Path) -> bytes:
    digest = xxh3_128()
    piece = bytearray(_READ_BYTES)
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(piece):
            digest.update(memoryview(piece)[:count])
    return digest.digest()


def _sampled_digest(file: Path, size_bytes: int) -> bytes:
    digest = xxh3_128()
    with file.open("rb") as stream:
        header = header_bytes(stream, size_bytes, file)
        for offset, count in [(0, header), *_samples(header, size_bytes)]:
            for start in range(offset, offset + count, _READ_BYTES):
                wanted = min(_READ_BYTES, offset + count - start)
                piece = os.pread(stream.fileno(), wanted, start)
                if len(piece) < wanted:
                    raise _changing(file)
                digest.update(piece)
    return digest.digest()


def _samples(header: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """(offset, bytes) to read behind the header: one piece in each of 512 equal parts, at a
    place that the file's size alone decides; everything, where there is not more than that."""
    payload = size_bytes - header
    if payload <= _SAMPLES * _SAMPLE_BYTES:
        yield header, payload
        return
    for part in range(_SAMPLES):
        first, end = payload * part // _SAMPLES, payload * (part + 1) // _SAMPLES
        seed = _SAMPLE_DOMAIN + size_bytes.to_bytes(8, "little") + part.to_bytes(4, "little")
        drawn = int.from_bytes(hashlib.sha256(seed).digest()[:8], "little")
        yield header + first + drawn % (end - first - _SAMPLE_BYTES + 1), _SAMPLE_BYTES


def _changing(file: Path) -> ModelError:
    return ModelError(
        f"{file} changed while it was read",
        path=str(file),
        remedy="wait until the model is complete, then start again",
    )
