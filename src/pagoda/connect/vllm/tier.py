"""PagodaTier: a SecondaryTierManager of vLLM over the store.

All methods run in vLLM's scheduler and return at once, but for `drain_jobs` and `shutdown`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    OffloadingGaugeMetadata,
    ReqContext,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager
from vllm.version import __version__ as vllm_version

from pagoda.connect.counts import BOUNCED, Counts
from pagoda.connect.endpoint import MetricsEndpoint, observing
from pagoda.connect.vllm.below import Engine, open_below
from pagoda.connect.vllm.counts import COUNTERS, GAUGES, HELD, UNIT
from pagoda.connect.vllm.engine import engine_config
from pagoda.connect.vllm.held import HeldChunks
from pagoda.connect.vllm.jobs import Finished
from pagoda.connect.vllm.offload import Offload
from pagoda.connect.vllm.options import options_of
from pagoda.core.events import Observer
from pagoda.tiers.drive import DriveTier


class PagodaTier(SecondaryTierManager):
    """Chunks on Pagoda's drives and in its shared store, as the `entry` in vLLM's configuration
    says (`vllm.options`)."""

    medium: ClassVar[Any] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        **entry: Any,
    ) -> None:
        options = options_of(entry)
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality.LOCAL
        self._rows: Any = np.asarray(primary_kv_view)
        engine = Engine(
            offloading=offloading_spec.config,
            config=engine_config(),
            version=vllm_version,
            chunks=len(self._rows),
            chunk_bytes=self.block_size_bytes,
        )
        self._counts = Counts(UNIT)
        port = options.metrics_port and options.metrics_port + engine.replica
        self._endpoint = MetricsEndpoint(port, whose="PagodaTier") if port else None
        try:
            below = open_below(
                engine,
                options.settings,
                options.config,
                salt=options.salt,
                observer=observing(*self._listeners()),
            )
        except BaseException:
            if self._endpoint:
                self._endpoint.close()  # a failed start leaves no port taken
            raise
        self._store = below.store
        events_wanted = offloading_spec.kv_events_config.enable_kv_cache_events
        self._events: list[Any] | None = [] if options.kv_events and events_wanted else None
        self._offload = Offload(
            below.store,
            below.namespace,
            row=self._row,
            tokens=engine.chunk_tokens,
            names=None if self._events is None else below.names(),
        )
        if self._endpoint:
            self._endpoint.watch(self._offload.stats)
        self._flush_s = below.settings.store.flush_deadline
        self._spec = offloading_spec
        self._held: HeldChunks | None = None
        self._bounced = 0

    def lookup(self, key: bytes, req_context: Any) -> Any:
        found = self._offload.find(key, req_context.req_id)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def submit_store(self, job_metadata: Any) -> None:
        self._offload.save(
            job_metadata.job_id,
            list(job_metadata.keys),
            list(job_metadata.chunk_ids),
            job_metadata.req_context.req_id,
        )

    def submit_load(self, job_metadata: Any) -> None:
        self._offload.load(
            job_metadata.job_id, list(job_metadata.keys), list(job_metadata.chunk_ids)
        )

    def get_finished_jobs(self) -> Iterator[Any]:
        """Jobs that are over. Whoever iterates frees a failed load's chunks as soon as it is
        told; those that a thread may still write to are taken again before anyone else can."""
        if self._held:
            self._held.keep_only(self._offload.still_held())
        for job in self._offload.finished():
            self._note(job)
            yield self._result(job)
            if job.held:
                self._holding().hold(job.held)

    def has_pending_work(self) -> bool:
        """Whether the engine has to step without a request: routers wait for what is here."""
        return self._events is not None and self._offload.announced.untold

    def take_events(self) -> Iterable[Any]:
        if self._events is None:
            return []
        announced = self._offload.announced
        self._tell(announced.take_found(), removed=False)
        self._tell(announced.take_gone(), removed=True)
        told, self._events = self._events, []
        return told

    def touch(self, keys: Collection[bytes], req_context: Any) -> None:
        del req_context
        self._offload.touch(keys)

    def on_new_request(self, req_context: Any) -> Any:
        del req_context
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: Any) -> None:
        self._offload.forget(req_context.req_id)

    def on_schedule_end(self, context: Any) -> None:
        del context
        self._offload.ask()

    def drain_jobs(self) -> None:
        self._offload.drain()
        if self._held:
            self._held.keep_only(set())

    def shutdown(self) -> None:
        self._offload.close(flush_s=self._flush_s)
        if self._endpoint:
            self._endpoint.close()
        self._rows = None  # vLLM takes its memory back

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        del extra_config
        counters = {
            name: OffloadingCounterMetadata(documentation=meaning, labelnames=labels)
            for name, (labels, meaning) in COUNTERS.items()
        }
        gauges = {
            name: OffloadingGaugeMetadata(documentation=meaning) for name, meaning in GAUGES.items()
        }
        return {**counters, **gauges}

    def get_stats(self) -> Any:
        bounced = sum(
            level.sealed.tier.bounced
            for level in self._store.levels()
            if isinstance(level.sealed.tier, DriveTier)
        )
        self._counts.add(BOUNCED, bounced - self._bounced)
        self._bounced = bounced
        stats = OffloadingConnectorStats()
        for (name, labels), count in self._counts.take().items():
            stats.increase_counter(name, count, labels)
        stats.set_gauge(HELD, len(self._held) if self._held else 0)
        return stats

    def _listeners(self) -> list[Observer]:
        """Who hears of what the store does."""
        return [self._counts, self._endpoint] if self._endpoint else [self._counts]

    def _row(self, chunk: int) -> memoryview:
        return memoryview(self._rows[chunk]).cast("B")

    def _holding(self) -> HeldChunks:
        if self._held is None:
            primary = self._spec.get_manager().primary_tier
            self._held = HeldChunks(primary, lambda: ReqContext(req_id="pagoda-held"))
        return self._held

    def _note(self, job: Finished) -> None:
        """Events of chunks that are stored, or turned out to be bad."""
        if self._events is None:
            return
        if job.loads:
            self._offload.announced.look_after(job.bad)
        else:
            self._tell(self._offload.announced.add(job.good), removed=False)

    def _tell(self, names: list[bytes], *, removed: bool) -> None:
        if names and self._events is not None:
            self._events.append(
                OffloadingEvent(
                    keys=names,
                    medium=self.medium,
                    removed=removed,
                    locality=self.locality,
                    ownership=self.tier_type,
                )
            )

    def _result(self, job: Finished) -> Any:
        return JobResult(
            job_id=job.number,
            success=not job.bad,
            successful_keys=job.good if job.loads and job.bad and job.good else None,
            transfer_time=job.seconds,
            transfer_bytes=job.size_bytes,
        )
