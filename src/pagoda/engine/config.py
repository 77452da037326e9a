"""A model's shape and arithmetic, read from its config.json, or a clear refusal.

Nothing is guessed: a key is implemented, known to be harmless, required to have a value
that leaves the arithmetic alone, or the model is refused with the name of the feature.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.core.errors import ModelNotFound, UnsupportedModel
from pagoda.engine.config_keys import (
    ARCHITECTURES,
    FEATURES,
    HARMLESS,
    IMPLEMENTED,
    NEUTRAL_VALUES,
    Architecture,
)
from pagoda.engine.rope import Rope, parse_rope


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The shape of a decoder of the Llama family. Sizes count elements, not bytes."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_position: int
    norm_eps: float
    rope: Rope
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool

    @property
    def q_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim


def read_config(directory: Path) -> ModelConfig:
    """The configuration in `directory`/config.json.

    Raises ModelNotFound when it is absent or not JSON, UnsupportedModel when it asks for
    anything that Pagoda does not implement.
    """
    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelNotFound(
            f"no readable config.json in {directory}: {error.strerror}",
            path=str(directory),
            remedy="name a local Hugging Face model directory",
        ) from error
    except ValueError as error:
        raise ModelNotFound(f"{path} is not JSON: {error}", path=str(path)) from error
    if not isinstance(raw, dict):
        raise ModelNotFound(f"{path} does not hold a JSON object", path=str(path))
    return parse_config(raw, path=str(directory))


def parse_config(raw: Mapping[str, Any], *, path: str) -> ModelConfig:
    """Turn a config.json object into a ModelConfig; raises UnsupportedModel."""
    name, architecture = _architecture(raw, path)
    _refuse_features(raw, path)
    _refuse_unknown_keys(raw, path)
    _refuse_sliding_window(raw, architecture, path)
    numbers = _Numbers(raw, path)
    heads = numbers.count("num_attention_heads")
    hidden = numbers.count("hidden_size")
    bias = bool(raw.get("attention_bias", False))
    config = ModelConfig(
        architecture=name,
        vocab_size=numbers.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=numbers.count("intermediate_size"),
        layers=numbers.count("num_hidden_layers"),
        heads=heads,
        kv_heads=numbers.count("num_key_value_heads", heads),
        head_dim=numbers.count("head_dim", architecture.head_dim or hidden // heads),
        max_position=numbers.count("max_position_embeddings"),
        norm_eps=numbers.positive("rms_norm_eps", 1e-6),
        rope=parse_rope(raw, path=path),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=architecture.qkv_bias or bias,
        output_bias=bias,
        mlp_bias=bool(raw.get("mlp_bias", False)),
        qk_norm=architecture.qk_norm,
    )
    _refuse_shapes(config, raw, architecture, path)
    return config


def _architecture(raw: Mapping[str, Any], path: str) -> tuple[str, Architecture]:
    names = raw.get("architectures") or []
    if not isinstance(names, list) or len(names) != 1 or names[0] not in ARCHITECTURES:
        raise _unsupported(f"architecture {names}", path, f"one of {', '.join(ARCHITECTURES)}")
    architecture = ARCHITECTURES[names[0]]
    if raw.get("model_type", architecture.model_type) != architecture.model_type:
        raise _unsupported(f"model_type {raw['model_type']!r} with {names[0]}", path)
    return names[0], architecture


def _refuse_features(raw: Mapping[str, Any], path: str) -> None:
    for key, feature in FEATURES.items():
        if raw.get(key):
            raise _unsupported(f"{feature} ({key}={_short(raw[key])})", path)


def _refuse_unknown_keys(raw: Mapping[str, Any], path: str) -> None:
    for key, value in raw.items():
        if key in NEUTRAL_VALUES:
            if value not in NEUTRAL_VALUES[key]:
                raise _unsupported(f"{key}={_short(value)}", path)
        elif key in IMPLEMENTED or key in HARMLESS or key in FEATURES or value is None:
            continue
        else:
            raise _unsupported(
                f"the configuration key {key!r} (value {_short(value)})",
                path,
                "Pagoda cannot tell whether it changes the arithmetic",
            )


def _refuse_sliding_window(raw: Mapping[str, Any], architecture: Architecture, path: str) -> None:
    layers = raw.get("layer_types") or []
    if any(kind != "full_attention" for kind in layers):
        raise _unsupported(f"layer_types other than full_attention ({_short(layers)})", path)
    if raw.get("use_sliding_window"):
        raise _unsupported("sliding window attention (use_sliding_window)", path)
    if architecture.window_needs_switch:
        return
    window = raw.get("sliding_window", architecture.default_window)
    if window is not None:
        said = "" if "sliding_window" in raw else ", the default when the key is absent"
        raise _unsupported(f"sliding window attention (sliding_window={window}{said})", path)


def _refuse_shapes(
    config: ModelConfig, raw: Mapping[str, Any], architecture: Architecture, path: str
) -> None:
    if config.head_dim % 2:
        raise _unsupported(f"an odd head_dim ({config.head_dim}); it must be even", path)
    if config.heads % config.kv_heads:
        raise _unsupported(
            f"{config.heads} attention heads over {config.kv_heads} key-value heads", path
        )
    if "attention_bias" in raw and not architecture.attention_bias_key:
        implied = architecture.qkv_bias
        if bool(raw["attention_bias"]) != implied:
            raise _unsupported(f"attention_bias={raw['attention_bias']}", path)
    if config.mlp_bias and not architecture.mlp_bias_key:
        raise _unsupported(f"mlp_bias with {config.architecture}", path)


class _Numbers:
    """Reads numbers out of a configuration, or refuses the model."""

    def __init__(self, raw: Mapping[str, Any], path: str) -> None:
        self._raw = raw
        self._path = path

    def count(self, key: str, default: int | None = None) -> int:
        value = self._raw.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise _unsupported(f"{key}={_short(value)}, not a positive whole number", self._path)
        return value

    def positive(self, key: str, default: float) -> float:
        value = self._raw.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise _unsupported(f"{key}={_short(value)}, not a positive number", self._path)
        return float(value)


def _unsupported(feature: str, path: str, remedy: str = "") -> UnsupportedModel:
    return UnsupportedModel(
        f"{path} needs {feature}, which Pagoda does not implement",
        path=path,
        feature=feature,
        remedy=remedy,
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
