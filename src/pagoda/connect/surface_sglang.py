"""What PagodaStorage needs of SGLang, and the versions that the tests ran on."""

from __future__ import annotations

from pagoda.connect.guard import Expected, Surface

_STORAGE = "sglang.srt.mem_cache.hicache_storage"
_POOL = "sglang.srt.mem_cache.pool_host.base"

SGLANG = Surface(
    package="sglang",
    distributions=("sglang",),
    tested=("0.5.23",),
    classes=(
        Expected(
            module=_STORAGE,
            name="HiCacheStorage",
            sealed=True,
            methods={
                "register_mem_pool_host": ("mem_pool_host",),
                "register_mem_host_pool_v2": ("host_pool", "host_pool_name"),
                "on_host_pools_registered": (),
                "batch_exists_v2": ("keys", "pool_transfers", "extra_info"),
                "batch_get_v2": ("transfers", "extra_info"),
                "batch_set_v2": ("transfers", "extra_info"),
                "batch_get_v1": ("keys", "host_indices", "extra_info"),
                "batch_set_v1": ("keys", "host_indices", "extra_info"),
                "get": ("key", "target_location", "target_sizes"),
                "batch_get": ("keys", "target_locations", "target_sizes"),
                "set": ("key", "value", "target_location", "target_sizes"),
                "batch_set": ("keys", "values", "target_locations", "target_sizes"),
                "exists": ("key",),
                "batch_exists": ("keys", "extra_info"),
                "clear": (),
                "get_stats": (),
            },
        ),
        Expected(
            module=_STORAGE,
            name="HiCacheStorageConfig",
            fields=(
                "tp_rank",
                "tp_size",
                "pp_rank",
                "pp_size",
                "attn_cp_rank",
                "attn_cp_size",
                "is_mla_model",
                "dp_rank",
                "dcp_rank",
                "dcp_size",
                "tp_lcm_size",
                "extra_config",
            ),
        ),
        Expected(
            module=_STORAGE,
            name="PoolTransfer",
            fields=("name", "host_indices", "keys", "hit_policy", "indices_from_pool"),
        ),
        Expected(
            module=_STORAGE,
            name="PoolTransferResult",
            fields=("kv_hit_pages", "extra_pool_hit_pages", "restorable_prefix_pages"),
        ),
        Expected(
            module=_POOL,
            name="HostKVCache",
            methods={
                "get_data_page": ("index", "flat"),
                "get_dummy_flat_data_page": (),
                "set_from_flat_data_page": ("index", "data_page"),
                "available_size": (),
            },
        ),
        Expected(
            module="sglang.srt.configs.model_config",
            name="ModelConfig",
            methods={
                "from_server_args": (
                    "server_args",
                    "model_path",
                    "model_revision",
                    "is_draft_model",
                    "context_length",
                    "**kwargs",
                )
            },
        ),
        Expected(
            module="sglang.srt.model_executor.model_runner_components.weight_updater",
            name="WeightUpdater",
            methods={
                "update_weights_from_disk": (
                    "model_path",
                    "load_format",
                    "weight_name_filter",
                    "recapture_cuda_graph",
                ),
                "load_weights_from_distributed": ("named_tensors",),
                "update_weights_from_tensor": ("named_tensors", "load_format"),
                "update_weights_from_ipc": ("recv_req",),
            },
        ),
        Expected(
            module="sglang.srt.mem_cache.storage.backend_factory",
            name="StorageBackendFactory",
            methods={
                "_create_dynamic_backend": (
                    "backend_config",
                    "storage_config",
                    "mem_pool_host",
                    "**kwargs",
                )
            },
        ),
        Expected(
            module="sglang.srt.observability.metrics_collector",
            name="StorageMetrics",
            fields=("prefetch_pgs", "backup_pgs", "prefetch_bandwidth", "backup_bandwidth"),
        ),
    ),
)
