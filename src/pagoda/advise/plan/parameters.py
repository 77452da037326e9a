"""How many parameters an architecture has, and how large its weight files are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_GATED = 3
"""Matrices of a gated MLP: gate, up, down."""


def weight_files_bytes(directory: Path) -> int | None:
    """Return the size of a directory's safetensors weights, or None where there are none."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        total = json.loads(index.read_text(encoding="utf-8")).get("metadata", {}).get("total_size")
        if isinstance(total, int):
            return total
    files = list(directory.glob("*.safetensors"))
    return sum(file.stat().st_size for file in files) if files else None


def count_parameters(facts: dict[str, Any], family: str) -> tuple[float | None, float | None]:
    """Return (all, one token's) parameters from a text config, or (None, None).

    Counts matrices of the embedding, attention and gated MLPs or experts; norms and
    biases are left out (below 0.1 %). Architectures with other layers are not counted.
    """
    if family not in {"plain", "latent"} or not _is_gated(facts):
        return None, None
    needed = ("hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size")
    if any(not isinstance(facts.get(key), int) for key in needed):
        return None, None
    layers, hidden = facts["num_hidden_layers"], facts["hidden_size"]
    attention = _latent_attention(facts) if family == "latent" else _attention(facts)
    if attention is None:
        return None, None
    tables = 1 if facts.get("tie_word_embeddings") else 2
    fixed = tables * facts["vocab_size"] * hidden + layers * attention
    every, used = _mlps(facts, layers, hidden)
    return float(fixed + every), float(fixed + used)


def _is_gated(facts: dict[str, Any]) -> bool:
    kind = str(facts.get("model_type", ""))
    return not kind.startswith(("opt", "gpt_neox", "falcon", "starcoder2"))


def _attention(facts: dict[str, Any]) -> int | None:
    heads, head_dim = facts.get("num_attention_heads"), facts.get("head_dim")
    if not isinstance(heads, int) or not isinstance(head_dim, int):
        return None
    kv_heads = facts.get("num_key_value_heads") or heads
    return int(facts["hidden_size"] * head_dim * (2 * heads + 2 * kv_heads))


def _latent_attention(facts: dict[str, Any]) -> int | None:
    keys = ("num_attention_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
    if any(not isinstance(facts.get(key), int) for key in (*keys, "v_head_dim")):
        return None
    heads, rank, nope, rope = (int(facts[key]) for key in keys)
    hidden, value = int(facts["hidden_size"]), int(facts["v_head_dim"])
    query_rank = facts.get("q_lora_rank")
    query = (
        query_rank * (hidden + heads * (nope + rope))
        if isinstance(query_rank, int)
        else hidden * heads * (nope + rope)
    )
    latent = hidden * (rank + rope) + rank * heads * (nope + value)
    return int(query + latent + heads * value * hidden)


def _mlps(facts: dict[str, Any], layers: int, hidden: int) -> tuple[int, int]:
    """Return (all, one token's) parameters of all MLPs."""
    dense = _GATED * hidden * int(facts["intermediate_size"])
    experts = (
        facts.get("num_experts")
        or facts.get("n_routed_experts")
        or facts.get("num_local_experts")
        or 0
    )
    if not experts:
        return layers * dense, layers * dense
    width = int(facts.get("moe_intermediate_size") or facts["intermediate_size"])
    expert = _GATED * hidden * width
    shared = int(facts.get("n_shared_experts") or 0) * expert
    shared += _GATED * hidden * int(facts.get("shared_expert_intermediate_size") or 0)
    first_dense = int(facts.get("first_k_dense_replace") or 0)
    routed = layers - first_dense
    common = first_dense * dense + routed * (shared + hidden * experts)
    chosen = int(facts.get("num_experts_per_tok") or 0)
    return common + routed * experts * expert, common + routed * chosen * expert
