"""The built-in facts: models.toml and gpus.toml, read once."""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any

from pagoda.advise.plan.facts import MIB, GpuFacts, ModelFacts
from pagoda.core.errors import ModelNotFound, SettingsError
from pagoda.core.sizing import AttentionLayers, KvShape, LatentLayers, LayerGroup, StateLayers


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


@cache
def models() -> dict[str, ModelFacts]:
    """Return the catalogue of models by short name."""
    return {name: _model(name, row) for name, row in _table("models.toml").items()}


@cache
def gpus() -> dict[str, GpuFacts]:
    """Return the catalogue of GPUs by short name."""
    return {name: _gpu(name, row) for name, row in _table("gpus.toml").items()}


def find_model(name: str) -> ModelFacts:
    """Return the catalogue's model of that short name or repository; ModelNotFound otherwise."""
    repos = {str(row["repo"]).lower(): key for key, row in _table("models.toml").items()}
    key = repos.get(name.lower(), name.lower())
    if key in models():
        return models()[key]
    near = difflib.get_close_matches(key.rsplit("/", 1)[-1], models(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}? otherwise give" if near else "give"
    raise ModelNotFound(
        f"model {name!r} is neither a file or directory here nor in the catalogue",
        path=name,
        remedy=f"{hint} a config.json, its directory, or the facts: pagoda plan kv --layers ...",
    )


def find_gpu(name: str) -> GpuFacts:
    """Return the GPU of that short name or product name; SettingsError otherwise."""
    wanted = _plain(name)
    for key, row in _table("gpus.toml").items():
        if wanted in {_plain(key), *(_plain(product) for product in row["names"])}:
            return gpus()[key]
    near = difflib.get_close_matches(name.lower(), gpus(), n=3, cutoff=0.4)
    raise SettingsError(
        f"GPU {name!r} is not in the catalogue",
        key="gpu",
        source="GPU catalogue",
        remedy=f"one of {', '.join(near or gpus())}; or give its facts with --gpu-memory-gib, "
        "--gpu-bandwidth-gb-s and --gpu-tflops",
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("nvidia"))


def _model(name: str, row: dict[str, Any]) -> ModelFacts:
    params = row["params_b"] * 1e9
    return ModelFacts(
        name=name,
        source=f"catalogue: config.json and model card of {row['repo']}",
        kv=KvShape(groups=tuple(_groups(row)), shared_layers=row.get("shared_layers", 0)),
        layers=row["layers"],
        hidden=row["hidden"],
        q_heads=row["q_heads"],
        max_context=row["context"],
        params=params,
        active_params=row.get("active_b", row["params_b"]) * 1e9,
        experts=row.get("experts", 0),
        experts_per_token=row.get("experts_per_token", 0),
        weight_bits=float(row.get("weight_bits", 16)),
        notes=(row["note"],) if "note" in row else (),
    )


def _groups(row: dict[str, Any]) -> list[LayerGroup]:
    groups: list[LayerGroup] = [_attention(*facts) for facts in row.get("kv", [])]
    if "latent" in row:
        layers, latent = row["latent"]
        indexer = row.get("indexer_bytes", 0)
        groups.append(LatentLayers(layers=layers, latent=latent, indexer_bytes=indexer))
    if "state" in row:
        groups.append(StateLayers(**row["state"]))
    return groups


def _attention(layers: int, heads: int, head_dim: int, window: int | None = None) -> LayerGroup:
    return AttentionLayers(layers=layers, kv_heads=heads, head_dim=head_dim, window=window)


def _gpu(name: str, row: dict[str, Any]) -> GpuFacts:
    fp8 = row.get("fp8_tflops")
    generation, lanes = row["pcie"]
    return GpuFacts(
        name=name,
        source=row["source"],
        memory_bytes=row["memory_mib"] * MIB,
        bandwidth=row["bandwidth_gb_s"] * 1e9,
        bf16_flops=row["bf16_tflops"] * 1e12,
        fp8_flops=None if fp8 is None else fp8 * 1e12,
        nvlink=row["nvlink_gb_s"] * 1e9,
        pcie_generation=generation,
        pcie_lanes=lanes,
    )
