"""Names of vLLM's chunks (docs/design/identity.md, "Chunks of vLLM", is the specification).

vLLM names a chunk by a chained digest of its tokens and of what a request adds to them (salt,
pictures), and by its group. Model, weights, layout and ranks are not in it: they are the
namespace's, from which and vLLM's name a key is made.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pagoda.core.errors import UnsupportedModel
from pagoda.core.identity import DIGEST_BYTES, Key, Namespace, NamespaceId

NAME_BYTES = DIGEST_BYTES + 4  # a chunk's digest and its group
_KEY_DOMAIN = b"pagoda.vllm.v1\0"
# Requests choose what is hashed: anything faster could be made to collide.
_SOUND_HASHES = ("sha256", "sha256_cbor")
_NOT_ARITHMETIC = ("_name_or_path", "transformers_version")


def key_of(namespace: NamespaceId, name: bytes) -> Key:
    """The key of the chunk that vLLM calls `name`."""
    length = len(name).to_bytes(4, "little")
    return Key(hashlib.sha256(_KEY_DOMAIN + namespace + length + name).digest())


def namespace_of(  # noqa: PLR0913 - what makes chunks interchangeable, by where it is known
    offloading: Any,
    engine: Any,
    *,
    weights: bytes,
    chunk_bytes: int,
    version: str,
    salt: str,
) -> Namespace:
    """The namespace of an engine's chunks: `offloading` is its OffloadingConfig, `engine` its
    VllmConfig. Raises UnsupportedModel for what vLLM's names do not tell apart for certain."""
    _require_sound_names(engine)
    model = engine.model_config
    parallel = offloading.parallel
    layout = {
        "chunk_bytes": chunk_bytes,
        "block_bytes": offloading.worker_kv_bytes_per_block,
        "blocks_per_chunk": offloading.cache.blocks_per_chunk,
        "groups": [
            [group.group_id, group.tokens_per_block, list(group.layer_names)]
            for group in offloading.groups
        ],
        "kv_cache_layout": offloading.kv_cache_layout,
        "canonical": offloading.canonical_layout,
        "replicated": offloading.replicated_layout,
        "world": [parallel.world_size, parallel.pcp_size, parallel.dcp_size],
    }
    settings = model.hf_config.to_dict()
    config = {
        "model": {name: settings[name] for name in settings if name not in _NOT_ARITHMETIC},
        "dtype": str(model.dtype),
        "quantization": model.quantization,
        "hash": engine.cache_config.prefix_caching_hash_algo,
        "tokens_per_hash": offloading.cache.tokens_per_hash,
        "vllm": version,
    }
    return Namespace(
        weights=weights,
        config=_canonical(config),
        layout="vllm/" + _canonical(layout),
        dtype=offloading.model.dtype,
        scales="none" if engine.cache_config.cache_dtype == "auto" else "vllm",
        layers=sum(len(group.layer_names) for group in offloading.groups),
        kv_heads=model.get_total_num_kv_heads(),
        head_dim=model.get_head_size(),
        block_tokens=offloading.cache.tokens_per_hash,
        tp_rank=0,  # a chunk holds the parts of all ranks
        tp_size=parallel.tp_size,
        pp_rank=0,
        pp_size=parallel.pp_size,
        rope="in config",
        adapter="",
        salt=salt,
    )


def _require_sound_names(engine: Any) -> None:
    algorithm = engine.cache_config.prefix_caching_hash_algo
    if algorithm not in _SOUND_HASHES:
        raise UnsupportedModel(
            f"vLLM hashes prefixes with {algorithm}, which requests can be made to collide in",
            path=engine.model_config.model,
            feature=f"--prefix-caching-hash-algo {algorithm}",
            remedy=f"start vLLM with --prefix-caching-hash-algo {_SOUND_HASHES[0]}",
        )
    if engine.lora_config is not None:
        raise UnsupportedModel(
            "vLLM names adapters (LoRA) by name and path: another adapter of the same name would "
            "be given this one's KV after a restart",
            path=engine.model_config.model,
            feature="LoRA",
            remedy="start vLLM without --enable-lora, or without PagodaTier",
        )


def _canonical(content: object) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
