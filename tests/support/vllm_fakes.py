"""vLLM's interface for secondary tiers as far as PagodaTier uses it, without vLLM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock


class LookupResult(Enum):
    MISS = auto()
    HIT = auto()
    HIT_PENDING = auto()
    RETRY = auto()


class Medium(Enum):
    STORAGE = "STORAGE"


class Locality(Enum):
    LOCAL = "LOCAL"


@dataclass
class ReqContext:
    req_id: str


@dataclass
class RequestOffloadingContext:
    policy: str = "chunk_level"


@dataclass
class OffloadingEvent:
    keys: list[bytes]
    medium: Medium
    removed: bool
    locality: Locality | None = None
    ownership: str | None = None


@dataclass(frozen=True)
class OffloadingCounterMetadata:
    documentation: str
    labelnames: tuple[str, ...] = ()


class OffloadingGaugeMetadata(OffloadingCounterMetadata):
    pass


@dataclass
class TransferJob:
    job_id: int
    keys: list[bytes]
    chunk_ids: Any
    req_context: ReqContext = field(default_factory=lambda: ReqContext("r"))


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: Any = None
    transfer_time: float | None = None
    transfer_bytes: int | None = None


class SecondaryTierManager:
    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
    ) -> None:
        assert primary_kv_view.strides is not None
        self.block_size_bytes = primary_kv_view.strides[0]
        self.tier_type = tier_type


class OffloadingConnectorStats:
    def __init__(self) -> None:
        self.counters: dict[tuple[str, tuple[str, ...]], float] = {}
        self.gauges: dict[str, float] = {}

    def increase_counter(self, name: str, value: float, labels: tuple[str, ...] = ()) -> None:
        self.counters[name, labels] = self.counters.get((name, labels), 0) + value

    def set_gauge(self, name: str, value: float) -> None:
        self.gauges[name] = value


_BASE = (
    LookupResult,
    Medium,
    Locality,
    ReqContext,
    RequestOffloadingContext,
    OffloadingEvent,
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
)
_MODULES: dict[str, tuple[type, ...]] = {
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics": (OffloadingConnectorStats,),
    "vllm.v1.kv_offload.base": _BASE,
    "vllm.v1.kv_offload.tiering.base": (JobResult, SecondaryTierManager),
    "vllm.version": (),
}


@contextmanager
def fake_vllm() -> Iterator[Any]:
    """PagodaTier, derived from these; gone from `sys.modules` afterwards."""
    modules: dict[str, ModuleType] = {}
    for name, classes in _MODULES.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            modules.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        for one in classes:
            setattr(modules[name], one.__name__, one)
    modules["vllm.version"].__version__ = "0.0-fake"  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, modules):
        sys.modules.pop("pagoda.connect.vllm.tier", None)
        from pagoda.connect.vllm.tier import PagodaTier

        yield PagodaTier


def engine_of(model: str) -> Any:
    """A VllmConfig."""
    return SimpleNamespace(
        model_config=SimpleNamespace(
            model=model,
            hf_config=SimpleNamespace(to_dict=dict),
            dtype="torch.bfloat16",
            quantization=None,
            get_total_num_kv_heads=lambda: 2,
            get_head_size=lambda: 64,
        ),
        cache_config=SimpleNamespace(prefix_caching_hash_algo="sha256", cache_dtype="auto"),
        lora_config=None,
    )


def spec_of(model: str, *, primary: Any = None, events: bool = False, replica: int = 0) -> Any:
    """An OffloadingSpec over one group of two layers, of a data-parallel replica."""
    config = SimpleNamespace(
        groups=(SimpleNamespace(group_id=0, tokens_per_block=16, layer_names=("a", "b")),),
        worker_kv_bytes_per_block=4096,
        cache=SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=2),
        model=SimpleNamespace(name=model, dtype="bfloat16"),
        parallel=SimpleNamespace(
            world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, data_parallel_index=replica
        ),
        replicated_layout=False,
        canonical_layout=False,
        kv_cache_layout="HND",
    )
    return SimpleNamespace(
        config=config,
        kv_events_config=SimpleNamespace(enable_kv_cache_events=events),
        get_manager=lambda: SimpleNamespace(primary_tier=primary),
    )
