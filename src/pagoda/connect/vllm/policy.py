"""PagodaPolicy: a CachePolicy of vLLM that decides which chunks stay in its host memory.

vLLM's scheduler calls it, and waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from vllm.v1.kv_offload.cpu.policies.base import CachePolicy

from pagoda.connect.opening import all_settings_of
from pagoda.connect.vllm.chains import Chains
from pagoda.connect.vllm.engine import engine_config
from pagoda.connect.vllm.host_pins import HostPins
from pagoda.connect.vllm.hosted import HostedChunks, Visit
from pagoda.connect.vllm.options import WHOSE, options_of
from pagoda.connect.vllm.wishes import Wishes, wishes_of
from pagoda.core.errors import PagodaError, RequestError
from pagoda.core.policy import REGISTRY
from pagoda.settings.storage import pin_limits
from pagoda.settings.tree import Settings

_log = logging.getLogger("pagoda.connect")


class PagodaPolicy(CachePolicy):
    """Which chunks make room first is `host.policy`'s to say, which stay is `pins.*`'s and that
    of requests: settings come from where PagodaTier's do, and from its entry where there is one."""

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        settings = host_settings()
        self.hosted = HostedChunks(
            cache_capacity, REGISTRY[settings.host.policy], clock=time.monotonic
        )
        self.pins = HostPins(
            self.hosted.pinned,
            pin_limits(settings.pins),
            slots=cache_capacity,
            wall_ms=lambda: time.time_ns() // 1_000_000,
        )
        self._chunks: dict[bytes, Any] = {}
        _log.info("host memory of %d chunks, policy %s", cache_capacity, settings.host.policy)

    def get(self, key: Any) -> Any:
        return self._chunks.get(key)

    def insert(self, key: Any, chunk: Any) -> None:
        self.hosted.add(key, chunk.chunk_id)
        self._chunks[key] = chunk
        if chunk.ref_cnt == 0:
            self.hosted.lease(key, free=True)

    def remove(self, key: Any) -> None:
        self.hosted.drop(key)
        del self._chunks[key]

    def touch(self, keys: Iterable[Any], req_context: Any) -> None:
        del req_context
        self.hosted.touch(list(keys))

    def on_store_miss(self, keys: Iterable[Any], req_context: Any) -> None:
        self.hosted.lacks(self._visit(req_context), list(keys))

    def on_request_finished(
        self,
        key_groups: Sequence[Sequence[Any]],
        insertion_only_keys: set[Any],
        reused_keys: set[Any],
        req_context: Any,
    ) -> None:
        del insertion_only_keys, reused_keys  # policies know what was here
        prompt = self.hosted.over(self._visit(req_context), key_groups)
        wishes = _wishes(req_context)
        if wishes.unpin is not None:
            _log.info("%d pins of %r end", self.pins.remove(wishes.unpin), wishes.unpin)
        if wishes.pin is not None:
            self._pin(prompt, wishes)

    def evict(self, n: int, protected: set[Any]) -> list[tuple[Any, Any]] | None:
        self.pins.expire()
        names = self.hosted.evict(n, protected)
        return None if names is None else [(name, self._chunks.pop(name)) for name in names]

    def clear(self) -> None:
        self._chunks.clear()
        self.hosted.clear()
        self.pins.clear()

    def mark_evictable(self, key: Any) -> None:
        self.hosted.lease(key, free=True)

    def mark_non_evictable(self, key: Any) -> None:
        self.hosted.lease(key, free=False)

    def _visit(self, req_context: Any) -> Visit:
        visit: Visit | None = req_context.get_state(Visit)
        if visit is None or visit.tenure is not self.hosted.tenure:
            chains = Chains(req_context._offload_key_positions)
            visit = self.hosted.visit(chains, _wishes(req_context).hint)
            req_context.set_state(visit)
        return visit

    def _pin(self, prompt: Sequence[Any], wishes: Wishes) -> None:
        assert wishes.pin is not None, "a request that pins"
        try:
            pin = self.pins.add(prompt, wishes.pin)
        except RequestError as error:
            _log.warning("a request's prompt is not pinned: %s", error)
        else:
            _log.info("%d chunks are pinned for %r, as %s", len(pin.keys), pin.owner, pin.id)


def host_settings() -> Settings:
    """The settings of the engine that is being built. Raises SettingsError."""
    entry = _tier_entry()
    options = options_of(entry)
    whose = WHOSE if entry else "PagodaPolicy"
    return all_settings_of(options.settings, options.config, whose=whose)


def _tier_entry() -> dict[str, Any]:
    """PagodaTier's entry in the engine's configuration; empty where there is none."""
    try:
        extra = engine_config().kv_transfer_config.kv_connector_extra_config
    except PagodaError:  # nobody above has a configuration: files and variables are all there is
        return {}
    tiers = extra.get("secondary_tiers") or []
    return next((dict(tier) for tier in tiers if tier.get("type") == "PagodaTier"), {})


def _wishes(req_context: Any) -> Wishes:
    """What a request says to Pagoda; nothing, and a warning, when that cannot be."""
    wishes: Wishes | None = req_context.get_state(Wishes)
    if wishes is None:
        try:
            wishes = wishes_of(req_context.kv_transfer_params)
        except RequestError as error:
            _log.warning("a request's kv_transfer_params are not understood: %s", error)
            wishes = Wishes()
        req_context.set_state(wishes)
    return wishes
