"""What SGLang serves and where this process stands in it, read from SGLang's own configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagoda.core.errors import UnsupportedModel

# Others load weights that are not what lies in the model's directory, or none at all.
_LOAD_FORMATS = (
    "auto",
    "safetensors",
    "instanttensor",
    "gguf",
    "bitsandbytes",
    "layered",
    "mistral",
    "fastsafetensors",
)
_KV_DTYPES = ("auto", "bf16", "bfloat16", "fp8_e4m3", "fp8_e5m2")
_NOT_ARITHMETIC = ("_name_or_path", "transformers_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """This process among those of a server: `replica` tells copies of the whole model apart, and
    `replicated` says that all tensor-parallel ranks hold the same KV (MLA), of which one writes."""

    tp: tuple[int, int]
    pp: tuple[int, int]
    cp: tuple[int, int]
    dcp: tuple[int, int]
    replica: int
    replicated: bool

    @property
    def speaks(self) -> bool:
        """Whether it tells of pages for all ranks of its replica."""
        return not (self.tp[0] or self.pp[0] or self.cp[0] or self.dcp[0])

    @property
    def directory(self) -> str:
        """The name of its own directory below each of the drives' paths."""
        parts = [f"tp-{self.tp[0]}"]
        for name, (rank, size) in (("pp", self.pp), ("cp", self.cp), ("dcp", self.dcp)):
            parts += [f"{name}-{rank}"] if size > 1 else []
        parts += [f"dp-{self.replica}"] if self.replica else []
        return "-".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is served, as far as the bytes of its KV depend on it. `model` is the configuration
    of the checkpoint, `draft` what proposes tokens, with its directory, if anything does."""

    version: str
    model_path: str
    model: Mapping[str, Any]
    dtype: str
    quantization: str
    kv_dtype: str
    kv_heads: int
    head_dim: int
    draft: str = ""
    draft_path: str = ""


def rank_of(storage_config: Any, parallel: Any) -> Rank:
    """This process, by its HiCacheStorageConfig and SGLang's parallel state: the former has no
    rank of a server's plain replicas, which share a machine and must not share a directory."""
    replica = storage_config.dp_rank or getattr(parallel, "dp_rank", None) or 0
    return Rank(
        tp=(storage_config.tp_rank, storage_config.tp_size),
        pp=(storage_config.pp_rank, storage_config.pp_size),
        cp=(storage_config.attn_cp_rank, storage_config.attn_cp_size),
        dcp=(storage_config.dcp_rank, storage_config.dcp_size),
        replica=int(replica),
        replicated=bool(storage_config.is_mla_model),
    )


def served_of(bags: Any, model_config: Any, *, version: str) -> Served:
    """What is served, by SGLang's resolved settings (`model`, `lora`, `spec`) and its ModelConfig.
    Raises UnsupportedModel for what its names of pages do not tell apart for certain."""
    model, draft = bags.model, bags.spec
    _require_sound_names(bags, model_config)
    settings = model_config.hf_config.to_dict()
    return Served(
        version=version,
        model_path=str(model.model_path),
        model={name: settings[name] for name in settings if name not in _NOT_ARITHMETIC},
        dtype=str(model_config.dtype),
        quantization=str(model.quantization),
        kv_dtype=str(model.kv_cache_dtype),
        kv_heads=int(model_config.get_total_num_kv_heads()),
        head_dim=int(model_config.head_dim or 0),
        draft=str(draft.speculative_algorithm or ""),
        draft_path=str(draft.speculative_draft_model_path or ""),
    )


def _require_sound_names(bags: Any, model_config: Any) -> None:
    model = bags.model
    path = str(model.model_path)
    if bags.lora.enable_lora or bags.lora.lora_paths:
        raise UnsupportedModel(
            "SGLang names adapters (LoRA) by name and path: another adapter of the same name would "
            "be given this one's KV after a restart",
            path=path,
            feature="LoRA",
            remedy="start SGLang without --enable-lora and --lora-paths, or without PagodaStorage",
        )
    if model_config.is_multimodal:
        raise UnsupportedModel(
            "SGLang names a picture by 64 bits of its digest, which requests can be made to "
            "collide in",
            path=path,
            feature="pictures, sound or video",
            remedy="start SGLang with --language-model-only, or without PagodaStorage",
        )
    known_values: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "--load-format": (model.load_format, _LOAD_FORMATS),
        "--kv-cache-dtype": (model.kv_cache_dtype, _KV_DTYPES),
        "--quantization-param-path": (model.quantization_param_path, (None, "")),
        "--custom-weight-loader": (model.custom_weight_loader, (None, [])),
    }
    for flag, (value, known) in known_values.items():
        if value not in known:
            raise UnsupportedModel(
                f"{flag} {value}: what it adds to the weights and the KV is not in the names of "
                "pages",
                path=path,
                feature=flag,
                remedy=f"start SGLang without {flag}, or without PagodaStorage",
            )
