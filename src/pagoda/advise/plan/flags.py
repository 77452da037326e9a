"""Ready command lines for vLLM, SGLang and Pagoda's own engine."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from pagoda.core.sizing import Parallel

_VLLM_KV = {"bf16": "auto", "fp16": "auto", "fp8": "fp8", "fp8_ds_mla": "fp8_ds_mla"}
_SGLANG_KV = {"bf16": "auto", "fp16": "auto", "fp8": "fp8_e4m3"}
_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What the command lines say."""

    model: str
    parallel: Parallel
    kv_dtype: str
    block_tokens: int
    max_model_len: int
    utilization: float
    max_requests: int
    host_bytes: int
    drive_bytes: int
    kv_bytes: int


def vllm_command(launch: Launch) -> str:
    """Return `vllm serve` with the plan's sizes; host memory goes to its offloading connector."""
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
        extra = {"cpu_bytes_to_use": launch.host_bytes}
        connector = {
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": extra,
        }
        flags += ["--kv-transfer-config", json.dumps(connector)]
    return shlex.join(["vllm", "serve", launch.model, *flags])


def sglang_command(launch: Launch) -> str:
    """Return SGLang's launch with the plan's sizes; host memory goes to HiCache (GB a rank)."""
    flags = [
        *_sizes(launch, "--tp-size", "--pp-size", "--dp-size"),
        *("--context-length", str(launch.max_model_len)),
        *("--mem-fraction-static", f"{launch.utilization:g}"),
        *("--max-running-requests", str(launch.max_requests)),
        *("--page-size", str(launch.block_tokens)),
        *("--kv-cache-dtype", _SGLANG_KV.get(launch.kv_dtype, launch.kv_dtype)),
    ]
    if launch.host_bytes:
        ranks = launch.parallel.gpus
        gigabytes = max(1, launch.host_bytes // ranks // 10**9)
        flags += ["--enable-hierarchical-cache", "--hicache-size", str(gigabytes)]
    return shlex.join(
        ["python", "-m", "sglang.launch_server", "--model-path", launch.model, *flags]
    )


def pagoda_command(launch: Launch) -> str:
    """Return `pagoda serve` with the plan's sizes, for one rank's worth on this host."""
    flags = [
        *("--model", launch.model),
        *("--engine-context-tokens", str(launch.max_model_len)),
        *("--engine-kv-memory", _size(launch.kv_bytes)),
        *("--engine-max-sequences", str(launch.max_requests)),
    ]
    if launch.host_bytes:
        flags += ["--host-capacity", _size(launch.host_bytes)]
    if launch.drive_bytes:
        flags += [
            "--drive-path",
            "/path/on/your/drive",
            "--drive-capacity",
            _size(launch.drive_bytes),
        ]
    return shlex.join(["pagoda", "serve", *flags])


def commands(launch: Launch) -> dict[str, str]:
    """Return all three command lines by engine."""
    return {
        "vllm": vllm_command(launch),
        "sglang": sglang_command(launch),
        "pagoda": pagoda_command(launch),
    }


def _sizes(launch: Launch, tensor: str, pipeline: str, data: str) -> list[str]:
    parallel = launch.parallel
    pairs = ((tensor, parallel.tp), (pipeline, parallel.pp), (data, parallel.dp))
    return [word for flag, size in pairs if size > 1 for word in (flag, str(size))]


def _size(size_bytes: int) -> str:
    return f"{size_bytes // _GIB}GiB" if size_bytes >= _GIB else f"{size_bytes >> 20}MiB"
