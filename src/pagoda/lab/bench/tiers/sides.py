"""The sides of `pagoda bench tiers`: a sealed tier, and the plain I/O that it is made of.

All move the same blocks between the same buffers, one block a call; how many calls run at a
time is the depth.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from pagoda.core.identity import Key, NamespaceId
from pagoda.core.outcome import Hit
from pagoda.machine.buffers import aligned_buffer
from pagoda.seal.header import Seal
from pagoda.tiers.drive.oserrors import typed_errors
from pagoda.tiers.sealed import Order, SealedTier

GENERATION = 1
_O_DIRECT = getattr(os, "O_DIRECT", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Random payloads to write and page-aligned places to read them back into."""

    block_bytes: int
    payloads: list[memoryview]
    into: list[memoryview]

    @classmethod
    def make(cls, *, block_bytes: int, count: int, seed: int) -> Blocks:
        """`count` blocks of `block_bytes` (a multiple of the page size)."""
        size = block_bytes * count
        source, target = memoryview(aligned_buffer(size)), memoryview(aligned_buffer(size))
        words = np.frombuffer(source, dtype=np.uint64)
        words[:] = np.random.default_rng(seed).integers(0, 2**64, len(words), dtype=np.uint64)
        cuts = [slice(i * block_bytes, (i + 1) * block_bytes) for i in range(count)]
        return cls(
            block_bytes=block_bytes,
            payloads=[source[cut] for cut in cuts],
            into=[target[cut] for cut in cuts],
        )

    @property
    def size_bytes(self) -> int:
        return self.block_bytes * len(self.payloads)

    def zero_targets(self) -> None:
        """Forget what was read, so that a read that does nothing is noticed."""
        for view in self.into:
            view[:4096] = bytes(4096)

    def check(self) -> None:
        """Assert that every block was read back whole."""
        for payload, view in zip(self.payloads, self.into, strict=True):
            assert payload == view, "a block was read back wrong"


class Side(Protocol):
    """Something that writes and reads blocks by number."""

    def write(self, block: int) -> None: ...

    def read(self, block: int) -> None: ...


class SealedSide:
    """A tier behind its seals, as the store uses it."""

    def __init__(self, tier: SealedTier, blocks: Blocks) -> None:
        self._tier = tier
        self._blocks = blocks
        keys = [_key(slot) for slot in range(len(blocks.payloads))]
        self._orders = [Order(slot, GENERATION, key) for slot, key in enumerate(keys)]
        self._seals = [_seal(slot, key, blocks.block_bytes) for slot, key in enumerate(keys)]

    def write(self, block: int) -> None:
        self._tier.store([block], [self._seals[block]], [self._blocks.payloads[block]])

    def read(self, block: int) -> None:
        (outcome,) = self._tier.load([self._orders[block]], [self._blocks.into[block]])
        assert isinstance(outcome, Hit), "a sealed block was lost"


class PlainFile:
    """pwrite and pread on a preallocated file, past the page cache where possible.

    It keeps the tier's promise on writes, and no more: each is made durable.
    """

    def __init__(self, path: Path, blocks: Blocks) -> None:
        self._blocks = blocks
        with typed_errors("plain file", str(path)):
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.fd, 0, blocks.size_bytes)
        self.direct = self._go_direct(path)

    def _go_direct(self, path: Path) -> bool:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | _O_DIRECT)
        except OSError:  # the file system has no direct I/O: both sides go through the cache
            return False
        os.close(self.fd)
        self.fd = fd
        return bool(_O_DIRECT)

    def write(self, block: int) -> None:
        size = self._blocks.block_bytes
        assert os.pwrite(self.fd, self._blocks.payloads[block], block * size) == size
        getattr(os, "fdatasync", os.fsync)(self.fd)

    def read(self, block: int) -> None:
        size = self._blocks.block_bytes
        assert os.preadv(self.fd, [self._blocks.into[block]], block * size) == size

    def close(self) -> None:
        os.close(self.fd)


class PlainMemory:
    """numpy copies to and from one region of memory."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._region = memoryview(aligned_buffer(blocks.size_bytes))

    def write(self, block: int) -> None:
        _copy(self._place(block), self._blocks.payloads[block])

    def read(self, block: int) -> None:
        _copy(self._blocks.into[block], self._place(block))

    def _place(self, block: int) -> memoryview:
        size = self._blocks.block_bytes
        return self._region[block * size : (block + 1) * size]


@contextmanager
def mover(depth: int, blocks: Blocks) -> Iterator[Callable[[Callable[[int], None]], None]]:
    """A function that calls its argument with every block, `depth` calls at a time.

    At depth 1 there is no other thread.
    """
    every = range(len(blocks.payloads))

    def alone(move: Callable[[int], None]) -> None:
        for block in every:
            move(block)

    if depth == 1:
        yield alone
        return
    with ThreadPoolExecutor(depth) as threads:

        def each(move: Callable[[int], None]) -> None:
            for _ in threads.map(move, every):
                pass

        yield each


def _copy(target: memoryview, source: memoryview) -> None:
    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))


def _key(slot: int) -> Key:
    return Key(hashlib.sha256(b"pagoda bench" + slot.to_bytes(8, "little")).digest())


def _seal(slot: int, key: Key, block_bytes: int) -> Seal:
    return Seal(
        namespace=NamespaceId(bytes(32)),
        key=key,
        parent=Key(bytes(32)),
        depth=slot,
        tokens=16,
        generation=GENERATION,
        raw_bytes=block_bytes,
        stored_bytes=block_bytes,
        payload_digest=bytes(16),
        created_ms=0,
    )
