"""PagodaStorage: a HiCacheStorage of SGLang over the store.

SGLang calls it from threads of its own: one looks up, one reads, one writes. Each call ends within
store.restore_deadline.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolTransferResult
from sglang.srt.observability.metrics_collector import StorageMetrics
from sglang.srt.runtime_context import (
    get_lora,
    get_memory,
    get_model,
    get_parallel,
    get_server_args,
    get_spec,
)
from sglang.version import __version__ as sglang_version

from pagoda.connect.counts import Counts
from pagoda.connect.opening import settings_of
from pagoda.connect.sglang.held import HeldPages
from pagoda.connect.sglang.library import Library, Pool
from pagoda.connect.sglang.options import WHOSE, options_of
from pagoda.connect.sglang.pages import Buffers, Pages, bytes_of, copy_of, pages_of
from pagoda.connect.sglang.pools import restorable
from pagoda.connect.sglang.served import rank_of, served_of
from pagoda.connect.sglang.shelves import Moved, Shelves, Volume
from pagoda.core.errors import PagodaError, SettingsError

UNIT = "segments"
_KV = "kv"
_BUSY_S, _IDLE_S = 0.02, 0.5  # how often our thread looks, with and without work under way
_log = logging.getLogger("pagoda.connect")


class PagodaStorage(HiCacheStorage):
    """Pages on Pagoda's drives and in its shared store."""

    def __init__(self, storage_config: Any, kwargs: Any = None) -> None:
        del kwargs
        options = options_of(storage_config.extra_config)
        if storage_config.tp_lcm_size:
            raise SettingsError(
                f"{WHOSE} does not cut pages up for servers of other tensor-parallel sizes",
                key="tp_lcm_size",
                source="--hicache-storage-backend-extra-config",
                remedy="leave tp_lcm_size out: each size has pages of its own",
            )
        bags = SimpleNamespace(model=get_model(), lora=get_lora(), spec=get_spec())
        model_config = ModelConfig.from_server_args(get_server_args())
        self._library = Library(
            settings=settings_of(options.settings, options.config, whose=WHOSE),
            served=served_of(bags, model_config, version=sglang_version),
            rank=rank_of(storage_config, get_parallel()),
            salt=options.salt,
        )
        self._library.require_a_writer()
        self._in_place = options.in_place
        self._pools: dict[str, Pool] = {}
        self._volumes: dict[str, Volume] | None = None
        self._opening = threading.Lock()
        self._counts = Counts(UNIT)
        self._shelves = Shelves(deadline_s=self._library.settings.store.restore_deadline)
        self._held = HeldPages()
        self._stats_lock = threading.Lock()
        self._stats = StorageMetrics()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tend, name="pagoda-sglang", daemon=True)

    # Pools.

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._register(mem_pool_host, _KV, in_place=self._in_place)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        name = str(host_pool_name)
        if name not in self._pools:  # the first pool of a group is registered both ways
            self._register(host_pool, name, in_place=True)

    def on_host_pools_registered(self) -> None:
        """Open the stores, so that what is wrong keeps the server from starting; where pools come
        later, at the first use."""
        later = get_spec().speculative_algorithm or get_memory().hicache_host_memory_mode != "cache"
        if not later:
            self._open()

    # Looking up.

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        del extra_info
        volume = self._volume(_KV)
        return self._shelves.leading(volume, keys) if volume else 0

    def batch_exists_v2(
        self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None
    ) -> Any:
        count = self.batch_exists(keys, extra_info)
        found: dict[str, list[bool]] = {}
        for transfer in pool_transfers or ():
            volume = self._volume(str(transfer.name))
            names = keys[:count]
            found[transfer.name] = (
                self._shelves.present(volume, names) if volume else [False] * count
            )
        hits, lengths = restorable(count, found, pool_transfers or ())
        return PoolTransferResult(lengths[-1] if lengths else 0, hits, lengths)

    # Reading and writing in place.

    def batch_get_v1(
        self, keys: list[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        del extra_info
        return self._get(_KV, keys, host_indices)

    def batch_set_v1(
        self, keys: list[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        del extra_info
        return self._set(_KV, keys, host_indices)

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> dict[str, list[bool]]:
        del extra_info
        return {one.name: self._get(str(one.name), one.keys, one.host_indices) for one in transfers}

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> dict[str, list[bool]]:
        del extra_info
        return {one.name: self._set(str(one.name), one.keys, one.host_indices) for one in transfers}

    # Reading and writing by tensors.

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location], target_sizes)[0]

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[Any]:
        del target_sizes
        targets = list(target_locations)
        buffers = [[bytes_of(target)] for target in targets]
        moved = self._load(_KV, keys, buffers)
        return [target if good else None for target, good in zip(targets, moved.good, strict=True)]

    def set(
        self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None
    ) -> bool:
        return self.batch_set([key], [value], target_location, target_sizes)

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        del target_locations, target_sizes
        # A tensor may be a view of memory that SGLang uses again: nothing tells which.
        return all(self._save(_KV, keys, [[copy_of(value)] for value in values]).good)

    # Administration.

    def clear(self) -> None:
        dropped = self._shelves.clear()
        _log.info("%d segments were dropped from this server's drives", dropped)

    def get_stats(self) -> Any:
        with self._stats_lock:
            taken, self._stats = self._stats, StorageMetrics()
        return taken

    def close(self) -> None:
        """Write what waits, and give the directories back. SGLang calls it when it detaches."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._shelves.close(flush_s=self._library.settings.store.flush_deadline)
        self._held.settle()
        if not len(self._held):
            self._held.leave()

    def _register(self, pool: Any, name: str, *, in_place: bool) -> None:
        self._pools[name] = (pool, pages_of(pool, name, in_place=in_place))
        self._held.watch(pool)

    def _open(self) -> None:
        with self._opening:
            if self._volumes is None:
                self._volumes = self._library.open(self._pools, self._shelves, self._counts)
                self._thread.start()

    def _volume(self, name: str) -> Volume | None:
        """Where a pool's pages are; None when nothing can be stored."""
        if self._volumes is None:
            try:
                self._open()
            except PagodaError:
                _log.exception("%s stores nothing from now on", WHOSE)
                self._volumes = {}
        return (self._volumes or {}).get(name)

    def _get(self, name: str, keys: Sequence[str] | None, indices: Any) -> list[bool]:
        keys = keys or []
        pages = self._pages(name, keys, indices)
        if pages is None:
            return [False] * len(keys)
        buffers = pages.room(indices)
        moved = self._load(name, keys, buffers)
        pages.take(indices, buffers, moved.good)
        self._hold(pages, indices, moved)
        return moved.good

    def _set(self, name: str, keys: Sequence[str] | None, indices: Any) -> list[bool]:
        keys = keys or []
        pages = self._pages(name, keys, indices)
        if pages is None:
            return [False] * len(keys)
        moved = self._save(name, keys, pages.filled(indices))
        self._hold(pages, indices, moved)
        return moved.good

    def _pages(self, name: str, keys: Sequence[str], indices: Any) -> Pages | None:
        if self._volume(name) is None or indices is None:
            return None
        pages = self._pools[name][1]
        if len(indices) != len(keys) * pages.tokens:
            _log.error("%d indices of pool %s for %d pages", len(indices), name, len(keys))
            return None
        return pages

    def _load(self, name: str, keys: Sequence[str], buffers: Buffers) -> Moved:
        return self._timed(name, keys, buffers, self._shelves.load)

    def _save(self, name: str, keys: Sequence[str], buffers: Buffers) -> Moved:
        return self._timed(name, keys, buffers, self._shelves.save)

    def _timed(
        self,
        name: str,
        keys: Sequence[str],
        buffers: Buffers,
        move: Callable[[Volume, Sequence[str], Buffers], Moved],
    ) -> Moved:
        volume = self._volume(name)
        if volume is None or any(_sizes(page) != volume.sizes for page in buffers):
            return Moved([False] * len(keys), [])
        began_s = time.monotonic()
        moved = move(volume, keys, buffers)
        self._measure(move == self._shelves.load, volume, moved, time.monotonic() - began_s)
        return moved

    def _measure(self, reads: bool, volume: Volume, moved: Moved, seconds: float) -> None:
        pages = sum(moved.good)
        rate = pages * sum(volume.sizes) / max(seconds, 1e-9) / 1e9
        with self._stats_lock:
            stats = self._stats
            (stats.prefetch_pgs if reads else stats.backup_pgs).append(pages)
            (stats.prefetch_bandwidth if reads else stats.backup_bandwidth).append(rate)

    def _hold(self, pages: Pages, indices: Any, moved: Moved) -> None:
        """Pages that a thread may still touch are nobody else's until it has come out."""
        for page, ended in enumerate(moved.ended if pages.direct else ()):
            if not ended():
                own = indices[page * pages.tokens : (page + 1) * pages.tokens]
                self._held.hold([int(index) for index in own], ended)

    def _tend(self) -> None:
        """Take in what ends while SGLang does not call, and give pages back."""
        pause_s = _IDLE_S
        while not self._stop.wait(pause_s):
            busy = self._shelves.poll()
            self._held.settle()
            pause_s = _BUSY_S if busy or len(self._held) else _IDLE_S


def _sizes(page: Sequence[memoryview]) -> tuple[int, ...]:
    return tuple(len(segment) for segment in page)
