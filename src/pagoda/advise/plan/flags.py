"""Ready command lines for vLLM and SGLang, with Pagoda below their host memory."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from pagoda.core.sizing import Parallel

_VLLM_KV = {"bf16": "auto", "fp16": "auto", "fp8": "fp8", "fp8_ds_mla": "fp8_ds_mla"}
_SGLANG_KV = {"bf16": "auto", "fp16": "auto", "fp8": "fp8_e4m3"}
_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What the command lines say. Host memory and space on drives are those of one replica."""

    model: str
    parallel: Parallel
    kv_dtype: str
    block_tokens: int
    max_model_len: int
    utilization: float
    max_requests: int
    host_bytes: int
    drives: int
    drive_bytes: int  # of each


def vllm_command(launch: Launch) -> str:
    """Return `vllm serve` with the plan's sizes; host memory goes to its offloading connector, and
    drives to PagodaTier below it."""
    flags = [
        *_sizes(
            launch, "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"
        ),
        *("--max-model-len", str(launch.max_model_len)),
        *("--gpu-memory-utilization", f"{launch.utilization:g}"),
        *("--max-num-seqs", str(launch.max_requests)),
        *("--block-size", str(launch.block_tokens)),
        *("--kv-cache-dtype", _VLLM_KV.get(launch.kv_dtype, launch.kv_dtype)),
        "--enable-prefix-caching",
    ]
    if launch.host_bytes:
        extra: dict[str, Any] = {"cpu_bytes_to_use": launch.host_bytes}
        if launch.drives:
            tier = {"type": "PagodaTier", "module_path": "pagoda.connect.vllm"}
            tiers = [tier | {"settings": _settings(launch)}]
            extra |= {"spec_name": "TieringOffloadingSpec", "secondary_tiers": tiers}
        connector = {
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            **({"kv_load_failure_policy": "recompute"} if launch.drives else {}),
            "kv_connector_extra_config": extra,
        }
        flags += ["--kv-transfer-config", json.dumps(connector)]
    return shlex.join(["vllm", "serve", launch.model, *flags])


def sglang_command(launch: Launch) -> str:
    """Return SGLang's launch with the plan's sizes; host memory goes to HiCache (GB a rank), and
    drives to PagodaStorage below it."""
    flags = [
        *_sizes(launch, "--tp-size", "--pp-size", "--dp-size"),
        *("--context-length", str(launch.max_model_len)),
        *("--mem-fraction-static", f"{launch.utilization:g}"),
        *("--max-running-requests", str(launch.max_requests)),
        *("--page-size", str(launch.block_tokens)),
        *("--kv-cache-dtype", _SGLANG_KV.get(launch.kv_dtype, launch.kv_dtype)),
    ]
    if launch.host_bytes:
        ranks = launch.parallel.gpus // launch.parallel.dp
        gigabytes = max(1, launch.host_bytes // ranks // 10**9)
        flags += ["--enable-hierarchical-cache", "--hicache-size", str(gigabytes)]
        if launch.drives:
            storage = {
                "backend_name": "pagoda",
                "module_path": "pagoda.connect.sglang",
                "class_name": "PagodaStorage",
                "interface_v1": 1,
                "settings": _settings(launch),
            }
            flags += ["--hicache-storage-backend", "dynamic"]
            flags += ["--hicache-storage-backend-extra-config", json.dumps(storage)]
    return shlex.join(
        ["python", "-m", "sglang.launch_server", "--model-path", launch.model, *flags]
    )


def commands(launch: Launch) -> dict[str, str]:
    """Return both command lines by engine."""
    return {"vllm": vllm_command(launch), "sglang": sglang_command(launch)}


def _settings(launch: Launch) -> dict[str, dict[str, str]]:
    """Pagoda's settings; whose drives they are, the reader fills in."""
    paths = ",".join(f"/path/on/drive{number}" for number in range(launch.drives))
    return {"drive": {"path": paths, "capacity": _size(launch.drive_bytes)}}


def _sizes(launch: Launch, tensor: str, pipeline: str, data: str) -> list[str]:
    parallel = launch.parallel
    pairs = ((tensor, parallel.tp), (pipeline, parallel.pp), (data, parallel.dp))
    return [word for flag, size in pairs if size > 1 for word in (flag, str(size))]


def _size(size_bytes: int) -> str:
    return f"{size_bytes // _GIB}GiB" if size_bytes >= _GIB else f"{size_bytes >> 20}MiB"
