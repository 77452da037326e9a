"""From a Hugging Face config.json to a model's facts; what it does not say is refused.

Architectures are read by family, each with its own rule for which layers keep what:

    plain     every layer keeps every token
    windowed  layer_types, or a sliding_window_pattern of n (every n-th layer is full)
    latent    MLA: kv_lora_rank + qk_rope_head_dim, and an indexer where there is one
    gdn       layer_types or full_attention_interval; the others keep a gated delta state
    mamba2    hybrid_override_pattern or layer_types; the others keep a Mamba-2 state

An architecture of no family is an error, never a guess.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.advise.plan.facts import ModelFacts
from pagoda.advise.plan.parameters import count_parameters, weight_files_bytes
from pagoda.core.errors import ModelError, ModelNotFound, SettingsError, UnsupportedModel
from pagoda.core.sizing import AttentionLayers, KvShape, LatentLayers, LayerGroup, StateLayers

_FAMILIES = {
    "plain": (
        "LlamaForCausalLM MistralForCausalLM MixtralForCausalLM Qwen2ForCausalLM "
        "Qwen2MoeForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM GemmaForCausalLM "
        "Phi3ForCausalLM OPTForCausalLM OlmoForCausalLM Olmo2ForCausalLM OlmoeForCausalLM "
        "GraniteForCausalLM GraniteMoeForCausalLM GPTNeoXForCausalLM Starcoder2ForCausalLM "
        "StableLmForCausalLM CohereForCausalLM InternLM2ForCausalLM SmolLM3ForCausalLM "
        "MiniMaxM2ForCausalLM Glm4MoeForCausalLM Qwen2VLForConditionalGeneration "
        "Qwen2_5_VLForConditionalGeneration Qwen3VLForConditionalGeneration "
        "Qwen2AudioForConditionalGeneration LlavaForConditionalGeneration FalconForCausalLM"
    ),
    "windowed": (
        "Gemma2ForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration "
        "Gemma4ForCausalLM Gemma4ForConditionalGeneration GptOssForCausalLM Cohere2ForCausalLM"
    ),
    "latent": (
        "DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekV32ForCausalLM "
        "KimiK2ForCausalLM GlmMoeDsaForCausalLM MiniCPM3ForCausalLM"
    ),
    "gdn": (
        "Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration "
        "Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration"
    ),
    "mamba2": "NemotronHForCausalLM",
}
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names.split()}
_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class Config:
    """A config.json: the text model's settings, and the path for errors."""

    path: str
    top: dict[str, Any]
    text: dict[str, Any]

    def need(self, *keys: str) -> int:
        """Return the first of `keys` that is set, as an int; ModelError where none is."""
        value = self.get(*keys)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(
                f"{self.path} does not say {' or '.join(keys)}"
                + ("" if value is None else f" as a positive number ({value!r})"),
                path=self.path,
                remedy="the planner does not guess: add it, or give the facts as flags "
                "(pagoda plan kv --layers ...)",
            )
        return value

    def count(self, *keys: str) -> int:
        """Return the first of `keys` that is set, or 0 where the model has none of it."""
        return self.need(*keys) if self.get(*keys) else 0

    def get(self, *keys: str) -> Any:
        """Return the first of `keys` that is set and not null, or None."""
        for key in keys:
            for table in (self.text, self.top):
                if table.get(key) is not None:
                    return table[key]
        return None


def read_model(path: Path) -> ModelFacts:
    """Return the facts of the model described by a config.json or the directory that holds it.

    Raises ModelNotFound, ModelError (a fact is missing or makes no sense) or UnsupportedModel.
    """
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ModelNotFound(f"{file} does not exist", path=str(path), remedy="give a config.json")
    try:
        return _facts(_load(file), file.parent)
    except SettingsError as error:
        raise ModelError(f"{file}: {error.message}", path=str(file)) from error
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # a value of the wrong kind somewhere in someone else's file
        raise ModelError(
            f"{file} holds a value that makes no sense: {error}", path=str(file)
        ) from error


def _facts(config: Config, directory: Path) -> ModelFacts:
    name, family = _family(config)
    head_dim = None if family == "latent" else _head_dim(config)
    groups, shared = _READERS[family](config)
    measured = weight_files_bytes(directory)
    bits, notes = _weight_bits(config)
    total, active = count_parameters(config.text | {"head_dim": head_dim}, family)
    if total is None and measured is not None and bits is not None:
        total = active = measured * 8 / bits
        notes += ("parameters are the weight files' size divided by their width",)
    return ModelFacts(
        name=str(config.get("_name_or_path") or directory.name or name),
        source=config.path,
        kv=KvShape(groups=groups, shared_layers=shared),
        layers=config.need("num_hidden_layers", "n_layer"),
        hidden=config.need("hidden_size", "n_embd"),
        q_heads=config.need("num_attention_heads", "n_head"),
        max_context=config.need("max_position_embeddings", "n_positions"),
        params=total,
        active_params=active,
        experts=config.count("num_experts", "n_routed_experts", "num_local_experts"),
        experts_per_token=config.count("num_experts_per_tok", "top_k_experts"),
        weight_bits=16.0 if bits is None else bits,
        weight_bytes=measured,
        kv_dtype=_kv_dtype(config),
        notes=notes,
    )


def _load(file: Path) -> Config:
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{file} cannot be read: {error}", path=str(file)) from error
    if not isinstance(raw, dict):
        raise ModelError(f"{file} is not a JSON object", path=str(file))
    text = raw.get("text_config") or raw.get("llm_config") or raw
    if not isinstance(text, dict):
        raise ModelError(f"{file}: text_config is not an object", path=str(file))
    return Config(path=str(file), top=raw, text=text)


def _family(config: Config) -> tuple[str, str]:
    names = config.top.get("architectures") or config.text.get("architectures") or []
    for name in names:
        if name in _FAMILY_OF:
            return name, _FAMILY_OF[name]
    feature = ", ".join(map(str, names)) or "no architecture"
    raise UnsupportedModel(
        f"{config.path} names {feature}, whose KV layout this planner does not know",
        path=config.path,
        feature=feature,
        remedy="give the facts as flags: pagoda plan kv --layers ... --kv-heads ... --head-dim ...",
    )


def _head_dim(config: Config) -> int:
    explicit = config.get("head_dim")
    if isinstance(explicit, int):
        return explicit
    hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
    if hidden % heads:
        raise ModelError(
            f"{config.path}: hidden_size {hidden} is not a multiple of {heads} heads, "
            "and head_dim is not given",
            path=config.path,
        )
    return hidden // heads


def _kv_heads(config: Config) -> int:
    """Return the KV heads; these families document "absent" as one for each query head."""
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):
        return 1
    value = config.get("num_key_value_heads", "num_kv_heads")
    return value if isinstance(value, int) else config.need("num_attention_heads")


def _attention(config: Config, layers: int, window: int | None = None) -> AttentionLayers:
    return AttentionLayers(
        layers=layers, kv_heads=_kv_heads(config), head_dim=_head_dim(config), window=window
    )


_Groups = tuple[tuple[LayerGroup, ...], int]


def _plain(config: Config) -> _Groups:
    layers = config.need("num_hidden_layers")
    window = config.get("sliding_window")
    if window is None or config.get("use_sliding_window") is False:
        return (_attention(config, layers),), 0
    kinds = config.get("layer_types")
    if kinds is None and config.get("use_sliding_window") is None:
        return (_attention(config, layers, window),), 0  # Mistral: every layer slides
    if kinds is None:
        full = min(layers, config.need("max_window_layers"))
        kinds = ["full_attention"] * full + ["sliding_attention"] * (layers - full)
    return _by_kind(config, kinds, window), 0


def _windowed(config: Config) -> _Groups:
    layers = config.need("num_hidden_layers")
    kinds = config.get("layer_types")
    if kinds is None:
        every = config.need("sliding_window_pattern", "_sliding_window_pattern")
        kinds = [
            "full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(layers)
        ]
    shared = config.count("num_kv_shared_layers")
    own = kinds[: layers - shared]
    return _by_kind(config, own, config.need("sliding_window")), shared


def _by_kind(config: Config, kinds: list[str], window: int) -> tuple[LayerGroup, ...]:
    unknown = set(map(str, kinds)) - {"full_attention", "sliding_attention"}
    if unknown:
        raise UnsupportedModel(
            f"{config.path} has layers of kind {', '.join(sorted(unknown))}",
            path=config.path,
            feature="layer_types",
        )
    full, sliding = kinds.count("full_attention"), kinds.count("sliding_attention")
    groups: list[LayerGroup] = []
    if full:
        groups.append(
            AttentionLayers(
                layers=full,
                kv_heads=config.get("num_global_key_value_heads") or _kv_heads(config),
                head_dim=config.get("global_head_dim") or _head_dim(config),
            )
        )
    if sliding:
        groups.append(_attention(config, sliding, window))
    return tuple(groups)


def _latent(config: Config) -> _Groups:
    latent = config.need("kv_lora_rank") + config.need("qk_rope_head_dim")
    indexer = config.get("index_head_dim")
    return (
        LatentLayers(
            layers=config.need("num_hidden_layers"),
            latent=latent,
            # fp8 elements, and one float32 scale to each 128 of them
            indexer_bytes=0 if indexer is None else indexer + 4 * -(-indexer // 128),
        ),
    ), 0


def _gdn(config: Config) -> _Groups:
    layers = config.need("num_hidden_layers")
    kinds = config.get("layer_types")
    full = (
        layers // config.need("full_attention_interval")
        if kinds is None
        else kinds.count("full_attention")
    )
    key_heads, value_heads = (
        config.need("linear_num_key_heads"),
        config.need("linear_num_value_heads"),
    )
    key_dim, value_dim = config.need("linear_key_head_dim"), config.need("linear_value_head_dim")
    state = StateLayers(
        layers=layers - full,
        heads=key_heads,
        state_elements=value_heads * key_dim * value_dim,
        conv_dim=2 * key_heads * key_dim + value_heads * value_dim,
        conv_kernel=config.need("linear_conv_kernel_dim"),
    )
    return (_attention(config, full), state), 0


def _mamba2(config: Config) -> _Groups:
    pattern = config.get("hybrid_override_pattern")
    if not isinstance(pattern, str):
        raise ModelError(f"{config.path} does not say hybrid_override_pattern", path=config.path)
    heads, head_dim = config.need("mamba_num_heads"), config.need("mamba_head_dim")
    state_size = config.need("ssm_state_size")
    state = StateLayers(
        layers=pattern.count("M"),
        heads=heads,
        state_elements=heads * head_dim * state_size,
        conv_dim=heads * head_dim + 2 * config.need("n_groups") * state_size,
        conv_kernel=config.need("conv_kernel"),
    )
    return (_attention(config, pattern.count("*")), state), 0


_READERS = {
    "plain": _plain,
    "windowed": _windowed,
    "latent": _latent,
    "gdn": _gdn,
    "mamba2": _mamba2,
}


def _weight_bits(config: Config) -> tuple[float | None, tuple[str, ...]]:
    """Return the weights' width; None where the quantisation's width is not stated."""
    quantization = config.top.get("quantization_config") or config.get("quantization_config")
    if not quantization:
        return 16.0, ()
    method = str(quantization.get("quant_method", "unknown"))
    if method == "fp8":
        return 8.0, ("fp8 weights",)
    if method == "mxfp4":
        return 4.25, ("MXFP4 weights: a shared 8-bit scale to 32 elements",)
    bits, group = quantization.get("bits"), quantization.get("group_size")
    if isinstance(bits, int) and isinstance(group, int) and group > 0:
        return bits + (16 + bits) / group, (
            f"{method}: {bits} bits, a scale and zero point to {group}",
        )
    return None, (f"{method} weights of a width the config does not state",)


def _kv_dtype(config: Config) -> str | None:
    """Return the dtype that engines' "auto" would choose for the cache, where it is stated."""
    quantization = config.top.get("quantization_config") or {}
    scheme = quantization.get("kv_cache_scheme")
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
        return "fp8"
    return _DTYPES.get(str(config.get("dtype", "torch_dtype")))
