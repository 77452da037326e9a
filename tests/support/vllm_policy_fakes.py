"""vLLM's manager of host memory as PagodaPolicy meets it, without vLLM."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pagoda.connect.opening
import pagoda.connect.vllm.engine
import pagoda.connect.vllm.host_pins
import pagoda.connect.vllm.hosted
import pagoda.connect.vllm.wishes  # noqa: F401 - what is imported below stays imported

_ENGINES = Path(__file__).parents[1] / "engines"
_POLICIES = "vllm.v1.kv_offload.cpu.policies.base"


class LookupResult(Enum):
    MISS = auto()
    HIT = auto()
    HIT_PENDING = auto()


@dataclass
class ReqContext:
    req_id: str
    kv_transfer_params: dict[str, Any] | None = None
    _state: dict[type, Any] = field(default_factory=dict)
    _offload_key_positions: dict[bytes, int] = field(default_factory=dict)

    def set_state(self, val: Any) -> None:
        self._state[type(val)] = val

    def get_state(self, cls: type) -> Any:
        return self._state.get(cls)

    def set_offload_key_position(self, key: bytes, end_token: int) -> None:
        self._offload_key_positions[key] = end_token


@dataclass
class ChunkStatus:
    chunk_id: int
    ref_cnt: int = -1


class CachePolicy:
    def __init__(self, cache_capacity: int) -> None:
        self.cache_capacity = cache_capacity


@dataclass
class Access:
    """What one request has loaded and offered."""

    epoch: int
    seen: dict[bytes, None] = field(default_factory=dict)
    missed: set[bytes] = field(default_factory=set)


class Manager:
    """Counts references and allocates, as vLLM's does; which chunks go is its policy's to say."""

    def __init__(self, chunks: int, policy: Any) -> None:
        self.policy = policy
        self._chunks = chunks
        self._epoch = 0
        self._free = list(range(chunks))

    def lookup(self, key: bytes, req_context: ReqContext) -> LookupResult:
        chunk = self.policy.get(key)
        if chunk is None:
            return LookupResult.MISS
        return LookupResult.HIT if chunk.ref_cnt >= 0 else LookupResult.HIT_PENDING

    def prepare_load(self, keys: Sequence[bytes], req_context: ReqContext) -> None:
        for key in keys:
            chunk = self.policy.get(key)
            if chunk.ref_cnt == 0:
                self.policy.mark_non_evictable(key)
            chunk.ref_cnt += 1
        self._access(req_context).seen.update(dict.fromkeys(keys))

    def complete_load(self, keys: Sequence[bytes], req_context: ReqContext) -> None:
        for key in keys:
            chunk = self.policy.get(key)
            chunk.ref_cnt -= 1
            if chunk.ref_cnt == 0:
                self.policy.mark_evictable(key)

    def prepare_store(self, keys: Sequence[bytes], req_context: ReqContext) -> Any:
        access = self._access(req_context)
        wanted = [key for key in keys if self.policy.get(key) is None]
        missed = [key for key in wanted if key not in access.missed]
        if missed:
            self.policy.on_store_miss(missed, req_context)
            access.missed.update(missed)
        ready = [key for key in keys if key not in wanted and self.policy.get(key).ref_cnt >= 0]
        access.seen.update(dict.fromkeys(key for key in keys if key in {*wanted, *ready}))
        lacking = len(wanted) - len(self._free)
        if lacking > 0:
            evicted = self.policy.evict(lacking, set(keys))
            if evicted is None:
                return None
            self._free += [chunk.chunk_id for _, chunk in evicted]
        for key in wanted:
            self.policy.insert(key, ChunkStatus(self._free.pop()))
        return SimpleNamespace(keys_to_store=wanted)

    def complete_store(self, keys: Sequence[bytes], req_context: ReqContext, success: bool) -> None:
        for key in keys:
            chunk = self.policy.get(key)
            if chunk is None or chunk.ref_cnt >= 0:
                continue
            if success:
                chunk.ref_cnt = 0
                self.policy.mark_evictable(key)
            else:
                self._free.append(chunk.chunk_id)
                self.policy.remove(key)

    def touch(self, keys: Sequence[bytes], req_context: ReqContext) -> None:
        self.policy.touch(keys, req_context)

    def on_request_finished(self, req_context: ReqContext) -> None:
        access = req_context.get_state(Access)
        if access is None or access.epoch != self._epoch:
            return
        groups: dict[bytes, list[bytes]] = {}
        for key in access.seen:
            groups.setdefault(key[-4:], []).append(key)
        ends = req_context._offload_key_positions
        ordered = tuple(
            tuple(sorted(groups[group], key=lambda key: ends.get(key, 0)))
            for group in sorted(groups)
        )
        self.policy.on_request_finished(ordered, access.missed, set(), req_context)

    def reset_cache(self) -> None:
        self.policy.clear()
        self._epoch += 1
        self._free = list(range(self._chunks))

    def _access(self, req_context: ReqContext) -> Access:
        access: Access | None = req_context.get_state(Access)
        if access is None or access.epoch != self._epoch:
            access = Access(self._epoch)
            req_context.set_state(access)
        return access


def pagoda_policy() -> Any:
    """PagodaPolicy, derived from these; `sys.modules` is left as it was."""
    modules: dict[str, ModuleType] = {}
    parts = _POLICIES.split(".")
    for end in range(1, len(parts) + 1):
        modules[".".join(parts[:end])] = ModuleType(".".join(parts[:end]))
    modules[_POLICIES].CachePolicy = CachePolicy  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, modules):
        sys.modules.pop("pagoda.connect.vllm.policy", None)
        from pagoda.connect.vllm.policy import PagodaPolicy

        return PagodaPolicy


def from_engines(name: str) -> Any:
    """A module that stands beside the tests on engines, and runs inside them as well."""
    spec = importlib.util.spec_from_file_location(name, _ENGINES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {name: module}):
        spec.loader.exec_module(module)
    return module
