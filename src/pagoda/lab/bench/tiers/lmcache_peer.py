"""LMCache's own disk backend as a peer, if it is installed; its code, not an imitation.

It wants more packages than its disk backend uses (`pip install --no-deps lmcache` and what it then
asks for). Its memory is a pool in huge pages, as Pagoda's is; its threads are its default, four;
writes are waited for through its own callback. Its telemetry is switched off.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from pagoda.core.errors import TierFault
from pagoda.lab.bench.tiers.file_peer import drop_from_page_cache
from pagoda.lab.bench.tiers.sides import Blocks
from pagoda.machine.buffers import aligned_buffer, populate

_TIMEOUT_S = 60.0
_NO_LIMIT_GIB = 2.0**20
_ENVIRONMENT = {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_LOG_LEVEL": "ERROR"}


class Missing(Exception):
    """LMCache cannot be had here; the message says why."""


class LMCachePeer:
    """LocalDiskBackend over a pool of memory. Raises Missing when it cannot be loaded."""

    def __init__(
        self, directory: Path, blocks: Blocks, *, direct: bool, package: Path | None
    ) -> None:
        self._library = _Library(package)
        self._blocks = blocks
        directory.mkdir(parents=True)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._pool = self._library.pool(3 * blocks.size_bytes)
        self._backend = self._library.backend(directory, self._loop, self, direct=direct)
        self._keys = [self._library.key(i) for i in range(len(blocks.payloads))]
        self._sources = [self._source(payload) for payload in blocks.payloads]
        self._got: list[Any] = []

    def allocate(self, shape: Any, dtype: Any, fmt: Any, **_: Any) -> Any:
        """What the backend asks its memory for."""
        return self._pool.allocate(shape, dtype, fmt)

    def forget(self) -> None:
        for key in self._keys:
            self._backend.remove(key)

    def drop(self) -> None:
        drop_from_page_cache([Path(self._backend._key_to_path(key)) for key in self._keys])

    def write(self) -> None:
        done = threading.Semaphore(0)
        self._backend.batched_submit_put_task(
            self._keys, self._sources, on_complete_callback=lambda _: done.release()
        )
        for _ in self._keys:
            if not done.acquire(timeout=_TIMEOUT_S):
                raise TierFault("LMCache dropped a write without a word", tier="LMCache")

    def read(self) -> None:
        self._got = self._backend.batched_get_blocking(self._keys)

    def check(self) -> None:
        for got, payload in zip(self._got, self._blocks.payloads, strict=True):
            assert memoryview(got.byte_array).cast("B") == payload, "LMCache read a block wrong"
            got.ref_count_down()
        self._got = []

    def close(self) -> None:
        self._backend.close()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _source(self, payload: memoryview) -> Any:
        held = self.allocate(*self._library.shape(len(payload)))
        memoryview(held.byte_array).cast("B")[:] = payload
        return held


class _Library:
    """The parts of LMCache, and of torch, that a disk backend takes."""

    def __init__(self, package: Path | None) -> None:
        if package is not None and str(package) not in sys.path:
            sys.path.append(str(package))  # behind this environment's own packages
        os.environ.update(_ENVIRONMENT)
        try:
            self.torch = importlib.import_module("torch")
            self.config = importlib.import_module("lmcache.v1.config")
            self.disk = importlib.import_module("lmcache.v1.storage_backend.local_disk_backend")
            self.memory = importlib.import_module("lmcache.v1.memory_management")
            self.allocator = importlib.import_module(
                "lmcache.v1.memory_allocators.tensor_memory_allocator"
            )
            self.utils = importlib.import_module("lmcache.utils")
        except ImportError as error:
            raise Missing(
                f"{error}; pip install --no-deps --target DIR lmcache, with the packages it then "
                "misses, and --lmcache DIR"
            ) from error

    def pool(self, size_bytes: int) -> Any:
        """Its allocator over aligned memory."""
        buffer = aligned_buffer(size_bytes)
        populate(buffer)
        pool = self.torch.from_numpy(np.frombuffer(buffer, dtype=np.uint8))
        return self.allocator.TensorMemoryAllocator(pool)

    def backend(self, directory: Path, loop: Any, memory: Any, *, direct: bool) -> Any:
        """Its disk backend on a directory, without a limit: it goes on counting what was removed,
        and then drops writes without a word."""
        config = self.config.LMCacheEngineConfig.from_defaults(
            local_disk=f"{directory}/",
            max_local_disk_size=_NO_LIMIT_GIB,
            extra_config={"use_odirect": direct},
        )
        return self.disk.LocalDiskBackend(config, loop, memory, "cpu")

    def key(self, number: int) -> Any:
        """A block's key."""
        return self.utils.CacheEngineKey("model", 1, 0, number, self.torch.uint8)

    def shape(self, size_bytes: int) -> tuple[Any, Any, Any]:
        """Shape, type and format of a block of plain bytes."""
        return (
            self.torch.Size([size_bytes]),
            self.torch.uint8,
            self.memory.MemoryFormat.BINARY,
        )
