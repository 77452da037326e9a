"""The sides of `pagoda bench tiers`: a sealed tier, and the plain I/O that it is made of.

All move the same runs of the same blocks between the same buffers; a run is what the store orders
at once, about 4 MiB, and at least a block. How many runs move at a time is the depth.
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
from pagoda.store.level import RUN_BYTES
from pagoda.tiers.drive.oserrors import typed_errors
from pagoda.tiers.port import Tier
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

    @property
    def runs(self) -> list[range]:
        """All blocks, in runs as the store orders them."""
        step = max(1, RUN_BYTES // self.block_bytes)
        count = len(self.payloads)
        return [range(first, min(first + step, count)) for first in range(0, count, step)]

    def zero_targets(self) -> None:
        """Forget what was read, so that a read that does nothing is noticed."""
        for view in self.into:
            view[:4096] = bytes(4096)

    def check(self) -> None:
        """Assert that every block was read back whole."""
        for payload, view in zip(self.payloads, self.into, strict=True):
            assert payload == view, "a block was read back wrong"


class Side(Protocol):
    """Something that writes and reads runs of blocks."""

    def write(self, run: range) -> None: ...

    def read(self, run: range) -> None: ...


class SealedSide:
    """A tier behind its seals, as the store uses it."""

    def __init__(self, tier: SealedTier, blocks: Blocks) -> None:
        self._tier = tier
        self._blocks = blocks
        keys = [_key(slot) for slot in range(len(blocks.payloads))]
        self._orders = [Order(slot, GENERATION, key) for slot, key in enumerate(keys)]
        self._seals = [_seal(slot, key, blocks.block_bytes) for slot, key in enumerate(keys)]

    def write(self, run: range) -> None:
        cut = slice(run.start, run.stop)
        self._tier.store(list(run), self._seals[cut], self._blocks.payloads[cut])

    def read(self, run: range) -> None:
        cut = slice(run.start, run.stop)
        outcomes = self._tier.load(self._orders[cut], self._blocks.into[cut])
        assert all(isinstance(outcome, Hit) for outcome in outcomes), "a sealed block was lost"


class UnverifiedSide:
    """Reads of the same tier without its seals: the same loop without the digest."""

    def __init__(self, tier: Tier, blocks: Blocks) -> None:
        self._tier = tier
        self._blocks = blocks

    def write(self, run: range) -> None:
        """Nothing: the sealed side has written the blocks."""

    def read(self, run: range) -> None:
        counts = self._tier.read(list(run), self._blocks.into[run.start : run.stop])
        assert counts == [self._blocks.block_bytes] * len(run), "a short read"


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

    def write(self, run: range) -> None:
        payloads = self._blocks.payloads[run.start : run.stop]
        written = os.pwritev(self.fd, payloads, run.start * self._blocks.block_bytes)
        assert written == len(run) * self._blocks.block_bytes, "a short write"
        getattr(os, "fdatasync", os.fsync)(self.fd)

    def read(self, run: range) -> None:
        into = self._blocks.into[run.start : run.stop]
        count = os.preadv(self.fd, into, run.start * self._blocks.block_bytes)
        assert count == len(run) * self._blocks.block_bytes, "a short read"

    def close(self) -> None:
        os.close(self.fd)


class PlainMemory:
    """numpy copies to and from one region of memory."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._region = memoryview(aligned_buffer(blocks.size_bytes))

    def write(self, run: range) -> None:
        for block in run:
            _copy(self._place(block), self._blocks.payloads[block])

    def read(self, run: range) -> None:
        for block in run:
            _copy(self._blocks.into[block], self._place(block))

    def _place(self, block: int) -> memoryview:
        size = self._blocks.block_bytes
        return self._region[block * size : (block + 1) * size]


Each = Callable[[Callable[[range], None]], None]


@contextmanager
def mover(depth: int, blocks: Blocks) -> Iterator[Each]:
    """A function that calls its argument with every run, `depth` calls at a time.

    At depth 1 there is no other thread.
    """
    runs = blocks.runs

    def alone(move: Callable[[range], None]) -> None:
        for run in runs:
            move(run)

    if depth == 1:
        yield alone
        return
    with ThreadPoolExecutor(depth) as threads:

        def each(move: Callable[[range], None]) -> None:
            for _ in threads.map(move, runs):
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
