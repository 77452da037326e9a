"""PagodaStorage: a HiCacheStorage of SGLang over the store.

SGLang calls it from threads of its own: one looks up, one reads, one writes.
"""

from __future__ import annotations

import logging
import threading
import time
from itertools import compress
from types import SimpleNamespace
from typing import Any

from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolTransferResult
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
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

from pagoda.connect.counts import BOUNCED
from pagoda.connect.opening import settings_of
from pagoda.connect.sglang.backend import Backend, Batch
from pagoda.connect.sglang.events import PageEvents, publisher
from pagoda.connect.sglang.host_pools import KV
from pagoda.connect.sglang.library import Library
from pagoda.connect.sglang.metrics import Exported
from pagoda.connect.sglang.options import WHOSE, options_of
from pagoda.connect.sglang.pages import bytes_of, copy_of, is_room, tokens_of
from pagoda.connect.sglang.pools import restorable
from pagoda.connect.sglang.served import Rank, Served, rank_of, served_of
from pagoda.connect.sglang.weights import weights_watch
from pagoda.core.errors import PagodaError, SettingsError

_NAMES_S = 5.0  # to write names of pages, at the end
_log = logging.getLogger("pagoda.connect")


class PagodaStorage(HiCacheStorage):
    """Pages on Pagoda's drives and in its shared store."""

    def __init__(self, storage_config: Any, kwargs: Any = None) -> None:
        del kwargs
        options = options_of(storage_config.extra_config)
        _require_whole_pages(storage_config)
        self._weights = weights_watch(WeightUpdater)
        _require_old_weights(changed=self._weights.changed)
        rank = rank_of(storage_config, get_parallel())
        library = Library(
            settings=settings_of(options.settings, options.config, whose=WHOSE),
            served=_served(),
            rank=rank,
            salt=options.salt,
            each_rank_writes=options.each_rank_writes,
        )
        library.require_a_writer()
        if options.each_rank_writes:
            storage_config.is_mla_model = False  # from which SGLang reads who is to write
        self._backend = Backend(library, in_place=options.in_place)
        self._stats_lock = threading.Lock()
        self._stats = StorageMetrics()
        self._exported = Exported(_labels(rank)) if storage_config.enable_storage_metrics else None
        self._endpoint = options.kv_events if rank.speaks else ""
        self._events: PageEvents | None = None
        self._replica = rank.replica
        self._told_s = time.monotonic()
        self._backend.on_open = self._opened
        self._backend.on_tend = self._tell
        self._backend.on_close = self._closing

    # Pools.

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._backend.pools.register(mem_pool_host, KV)
        if self._endpoint and self._events is None:
            tokens = tokens_of(mem_pool_host)
            self._events = publisher(self._endpoint, tokens=tokens, replica=self._replica)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._backend.pools.register(host_pool, str(host_pool_name))

    def on_host_pools_registered(self) -> None:
        """Open the stores, so that what is wrong keeps the server from starting; where pools come
        later, at the first use."""
        later = get_spec().speculative_algorithm or get_memory().hicache_host_memory_mode != "cache"
        if not later:
            self._backend.open()

    # Looking up.

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        del extra_info
        return 0 if self._weights.changed else self._backend.leading(keys)

    def batch_exists_v2(
        self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None
    ) -> Any:
        pages = self.batch_exists(keys, extra_info)
        transfers = self._known(pool_transfers or ())
        found = {one.name: self._backend.present(str(one.name), keys[:pages]) for one in transfers}
        hits, lengths = restorable(pages, found, transfers)
        return PoolTransferResult(lengths[-1] if lengths else 0, hits, lengths)

    # Reading and writing where pages lie.

    def batch_get_v1(
        self, keys: list[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        del extra_info
        return self._get(KV, keys, host_indices)

    def batch_set_v1(
        self, keys: list[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        del extra_info
        return self._set(KV, keys, host_indices)

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> dict[str, list[bool]]:
        del extra_info
        return {one.name: self._get(str(one.name), one.keys, one.host_indices) for one in transfers}

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> dict[str, list[bool]]:
        del extra_info
        known = self._known(transfers)
        return {one.name: self._set(str(one.name), one.keys, one.host_indices) for one in known}

    # Reading and writing by tensors.

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location], target_sizes)[0]

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[Any]:
        del target_sizes
        targets = list(target_locations or ())
        if self._weights.changed or len(targets) != len(keys) or not all(map(is_room, targets)):
            return [None] * len(keys)
        batch = self._backend.load(keys, [[bytes_of(target)] for target in targets])
        self._measure(batch, reads=True)
        return [target if good else None for target, good in zip(targets, batch.good, strict=True)]

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
        values = list(values or ())
        if self._weights.changed or len(values) != len(keys) or any(one is None for one in values):
            return False
        # A tensor may be a view of memory that SGLang uses again: nothing tells which.
        copies = [[copy_of(value)] for value in values]
        self._backend.counts.add(BOUNCED, len(copies))
        batch = self._backend.save(keys, copies)
        self._stored(KV, keys, batch)
        return all(batch.good)

    # Administration.

    def clear(self) -> None:
        _log.info("%d segments were dropped from this server's drives", self._backend.clear())

    def get_stats(self) -> Any:
        with self._stats_lock:
            taken, self._stats = self._stats, StorageMetrics()
        return taken

    def close(self) -> None:
        """Write what waits, and give the directories back. SGLang calls it when it detaches."""
        if not self._backend.close():
            _log.error("a drive is stuck: threads are left behind in it")
        if self._exported is not None:
            self._exported.show(self._backend.counts, held=self._backend.pools.held)

    def _known(self, transfers: Any) -> list[Any]:
        """Whose indices each pool has is told where pages are looked up and stored."""
        for one in transfers:
            source = one.indices_from_pool
            self._backend.pools.derives(str(one.name), None if source is None else str(source))
        return list(transfers)

    def _get(self, pool: str, keys: Any, indices: Any) -> list[bool]:
        names = list(keys or ())
        if self._weights.changed:
            return [False] * len(names)
        batch = self._backend.get(pool, names, indices)
        self._measure(batch, reads=True)
        return batch.good

    def _set(self, pool: str, keys: Any, indices: Any) -> list[bool]:
        names = list(keys or ())
        if self._weights.changed:
            return [False] * len(names)
        batch = self._backend.set(pool, names, indices)
        self._stored(pool, names, batch)
        return batch.good

    def _measure(self, batch: Batch, *, reads: bool) -> None:
        pages = sum(batch.good)
        rate = batch.size_bytes / max(batch.seconds, 1e-9) / 1e9
        with self._stats_lock:
            stats = self._stats
            (stats.prefetch_pgs if reads else stats.backup_pgs).append(pages)
            (stats.prefetch_bandwidth if reads else stats.backup_bandwidth).append(rate)

    def _stored(self, pool: str, names: list[str], batch: Batch) -> None:
        self._measure(batch, reads=False)
        if self._events is not None and pool == KV:
            self._events.stored(list(compress(names, batch.good)))

    def _opened(self) -> None:
        if self._events is not None:
            self._events.open(self._backend.announced())

    def _closing(self) -> None:
        if self._events is not None:
            self._events.close(_NAMES_S)

    def _tell(self) -> None:
        if self._exported is not None:
            self._exported.show(self._backend.counts, held=self._backend.pools.held)
        since_s, self._told_s = time.monotonic() - self._told_s, time.monotonic()
        if self._events is not None:
            self._events.publish(since_s)


def _served() -> Served:
    bags = SimpleNamespace(model=get_model(), lora=get_lora(), spec=get_spec())
    model_config = ModelConfig.from_server_args(get_server_args())
    return served_of(bags, model_config, version=sglang_version)


def _labels(rank: Rank) -> dict[str, str]:
    return {
        "tp_rank": str(rank.tp[0]),
        "pp_rank": str(rank.pp[0]),
        "dp_rank": str(rank.replica),
    }


def _require_whole_pages(storage_config: Any) -> None:
    if storage_config.tp_lcm_size:
        raise SettingsError(
            f"{WHOSE} does not cut pages up for servers of other tensor-parallel sizes",
            key="tp_lcm_size",
            source="--hicache-storage-backend-extra-config",
            remedy="leave tp_lcm_size out: each size has pages of its own",
        )


def _require_old_weights(*, changed: bool) -> None:
    if changed:
        raise PagodaError(
            "this server's weights were updated while it ran: they are not those in its model's "
            "directory any more, and pages cannot be named after them",
            remedy="restart the server with the new weights in a directory",
        )
