"""SGLang's interfaces as far as PagodaStorage uses them, without SGLang."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from pagoda.machine.buffers import address, aligned_buffer


class PoolHitPolicy(str, Enum):  # noqa: UP042 - as SGLang has it
    ALL_PAGES = "all_pages"
    TRAILING_PAGES = "trailing_pages"
    BLOCK_GROUPS = "block_groups"


@dataclass
class PoolTransfer:
    name: str
    host_indices: Any = None
    keys: list[str] | None = None
    hit_policy: PoolHitPolicy = PoolHitPolicy.ALL_PAGES
    indices_from_pool: str | None = None


@dataclass
class PoolTransferResult:
    kv_hit_pages: int
    extra_pool_hit_pages: dict[str, int]
    restorable_prefix_pages: list[int] | None = None


class HiCacheStorage:
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        self.registered = (host_pool, host_pool_name)


@dataclass
class StorageMetrics:
    prefetch_pgs: list[int] = field(default_factory=list)
    backup_pgs: list[int] = field(default_factory=list)
    prefetch_bandwidth: list[float] = field(default_factory=list)
    backup_bandwidth: list[float] = field(default_factory=list)


def updater() -> type:
    """A fresh class of updaters of weights."""

    class WeightUpdater:
        def update_weights_from_disk(self, model_path: str, load_format: str) -> str:
            return f"{model_path} {load_format}"

        def load_weights_from_distributed(self, named_tensors: Any) -> Any:
            return named_tensors

        def update_weights_from_tensor(self, named_tensors: Any) -> Any:
            return named_tensors

        def update_weights_from_ipc(self, recv_req: Any) -> Any:
            return recv_req

    return WeightUpdater


class HostPool:
    """A host pool of pages of `tokens` indices, whose bytes lie in `components`: for each, bytes of
    a page, one page behind the other. The first index of a page finds it."""

    def __init__(
        self,
        components: Sequence[int],
        *,
        pages: int = 64,
        tokens: int = 4,
        layout: str = "page_first_direct",
        in_place: bool = True,
        shift: int = 0,
    ) -> None:
        self.layout, self.page_size, self.dtype = layout, tokens, torch.uint8
        self.layer_num, self.start_layer = 2, 0
        self.size = self.logical_size = pages * tokens
        self._in_place = in_place
        self.memory = [
            torch.from_numpy(
                np.frombuffer(aligned_buffer(size * pages + shift), np.uint8)[shift:][
                    : size * pages
                ].reshape(pages, size)
            )
            for size in components
        ]
        self._lock = threading.RLock()
        self._slots: list[int] = []
        self._used: set[int] = set()
        self.clear()

    # Pages.

    def page(self, index: int) -> list[torch.Tensor]:
        """Its segments."""
        return [component[int(index) // self.page_size] for component in self.memory]

    def bytes_of(self, index: int) -> bytes:
        """All bytes of a page."""
        return b"".join(segment.numpy().tobytes() for segment in self.page(index))

    def fill(self, index: int, content: bytes) -> None:
        """Write a page."""
        self.set_from_flat_data_page(index, torch.frombuffer(bytearray(content), dtype=torch.uint8))

    @property
    def page_bytes(self) -> int:
        return sum(component.shape[1] for component in self.memory)

    def get_page_buffer_meta(self, indices: Any) -> tuple[list[int], list[int]]:
        if not self._in_place:
            raise ValueError(f"Unsupported layout: {self.layout}")
        segments = [s for index in indices[:: self.page_size].tolist() for s in self.page(index)]
        return [address(memoryview(s.numpy())) for s in segments], [len(s) for s in segments]

    def get_data_page(self, index: Any, flat: bool = True) -> torch.Tensor:
        assert flat
        segments = self.page(index)
        return segments[0] if len(segments) == 1 else torch.cat(segments)  # a view where it can be

    def get_dummy_flat_data_page(self) -> torch.Tensor:
        return torch.zeros(self.page_bytes, dtype=torch.uint8)

    def set_from_flat_data_page(self, index: Any, data_page: torch.Tensor) -> None:
        start = 0
        for segment in self.page(index):
            segment.copy_(data_page[start : start + len(segment)])
            start += len(segment)

    # Allocation.

    def available_size(self) -> int:
        return len(self._slots)

    def alloc(self, need_size: int) -> Any:
        assert need_size % self.page_size == 0
        with self._lock:
            if need_size > len(self._slots):
                return None
            taken, self._slots = self._slots[:need_size], self._slots[need_size:]
            assert not self._used.intersection(taken), "a slot is allocated twice"
            self._used.update(taken)
        return torch.tensor(taken, dtype=torch.int64)

    def free(self, indices: Any) -> int:
        freed = [int(index) for index in indices]
        with self._lock:
            assert self._used.issuperset(freed), "a slot is freed twice"
            self._used.difference_update(freed)
            self._slots += freed
        return len(freed)

    def clear(self) -> None:
        with self._lock:
            self._slots = list(range(self.size))
            self._used = set()


class MHATokenToKVPoolHost(HostPool):
    """Heads of plain attention, which each tensor-parallel rank has its own of."""


class MLATokenToKVPoolHost(HostPool):
    """The latent vectors that all ranks have alike."""


@dataclass
class Config:
    """A HiCacheStorageConfig."""

    extra_config: Mapping[str, Any]
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    attn_cp_rank: int = 0
    attn_cp_size: int = 1
    is_mla_model: bool = False
    enable_storage_metrics: bool = False
    dp_rank: int = 0
    dcp_rank: int = 0
    dcp_size: int = 1
    tp_lcm_size: int | None = None


def bags_of(model: str) -> Any:
    """SGLang's resolved settings, as far as they are read."""
    return SimpleNamespace(
        model=SimpleNamespace(
            model_path=model,
            load_format="auto",
            quantization=None,
            quantization_param_path=None,
            kv_cache_dtype="auto",
            custom_weight_loader=None,
        ),
        lora=SimpleNamespace(enable_lora=None, lora_paths=None),
        spec=SimpleNamespace(speculative_algorithm=None, speculative_draft_model_path=None),
        memory=SimpleNamespace(hicache_host_memory_mode="cache"),
        parallel=SimpleNamespace(dp_rank=None),
    )


def model_config() -> Any:
    """A ModelConfig."""
    return SimpleNamespace(
        hf_config=SimpleNamespace(to_dict=lambda: {"hidden_size": 64, "_name_or_path": "x"}),
        dtype="torch.bfloat16",
        is_multimodal=False,
        get_total_num_kv_heads=lambda: 2,
        head_dim=64,
    )


@contextmanager
def fake_sglang(bags: Any, weight_updater: type | None = None) -> Iterator[Any]:
    """PagodaStorage, derived from these; gone from `sys.modules` afterwards."""
    contents: dict[str, dict[str, Any]] = {
        "sglang.srt.configs.model_config": {
            "ModelConfig": SimpleNamespace(from_server_args=lambda _: model_config())
        },
        "sglang.srt.mem_cache.hicache_storage": {
            "HiCacheStorage": HiCacheStorage,
            "PoolTransferResult": PoolTransferResult,
        },
        "sglang.srt.model_executor.model_runner_components.weight_updater": {
            "WeightUpdater": weight_updater or updater()
        },
        "sglang.srt.observability.metrics_collector": {"StorageMetrics": StorageMetrics},
        "sglang.srt.runtime_context": {
            "get_lora": lambda: bags.lora,
            "get_memory": lambda: bags.memory,
            "get_model": lambda: bags.model,
            "get_parallel": lambda: bags.parallel,
            "get_server_args": lambda: None,
            "get_spec": lambda: bags.spec,
        },
        "sglang.version": {"__version__": "0.0-fake"},
    }
    modules: dict[str, ModuleType] = {}
    for name, values in contents.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            modules.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        vars(modules[name]).update(values)
    with mock.patch.dict(sys.modules, modules):
        sys.modules.pop("pagoda.connect.sglang.storage", None)
        from pagoda.connect.sglang.storage import PagodaStorage

        yield PagodaStorage
