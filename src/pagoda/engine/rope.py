"""Rotary position embedding: its settings and the tables of cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from pagoda.core.errors import UnsupportedModel

_DEFAULT_THETA: Final = 10_000.0  # what every supported architecture assumes without the key
_KEYS: Final[dict[str, frozenset[str]]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset(
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
    ),
}
_COMMON_KEYS: Final = frozenset({"rope_type", "type", "rope_theta", "partial_rotary_factor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """The settings of a rotary embedding; `kind` is "default", "linear" or "llama3".

    `original_max_position`, `low_freq_factor` and `high_freq_factor` only act in "llama3".
    """

    kind: str
    theta: float
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_max_position: int = 0


def parse_rope(raw: Mapping[str, Any], *, path: str) -> Rope:
    """Read rope settings in the old form (rope_theta, rope_scaling) and the new one
    (rope_parameters). Raises UnsupportedModel on any type or key that is not implemented."""
    old, new = raw.get("rope_scaling") or {}, raw.get("rope_parameters") or {}
    if old and new and old != new:
        raise _unsupported("rope_scaling and rope_parameters that disagree", path)
    settings = dict(old or new)
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind not in _KEYS:
        raise _unsupported(f"rope type {kind!r}", path)
    unknown = set(settings) - _KEYS[kind] - _COMMON_KEYS
    if any(settings[key] is not None for key in unknown):
        raise _unsupported(f"rope settings {sorted(unknown)} with type {kind!r}", path)
    if settings.get("partial_rotary_factor", 1.0) not in (1, None):
        raise _unsupported("a partial rotary embedding (partial_rotary_factor)", path)
    theta = settings.get("rope_theta", raw.get("rope_theta"))
    return _checked(kind, _DEFAULT_THETA if theta is None else theta, _scaling(settings, raw), path)


def _scaling(settings: dict[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    original = raw.get("original_max_position_embeddings") or settings.get(
        "original_max_position_embeddings", raw.get("max_position_embeddings")
    )
    return settings | {"original_max_position_embeddings": original}


def _checked(kind: str, theta: object, settings: Mapping[str, Any], path: str) -> Rope:
    numbers = {"rope_theta": theta} | {key: settings.get(key) for key in _KEYS[kind]}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise _unsupported(f"{key}={value!r}, not a positive number", path)
    return Rope(
        kind=kind,
        theta=float(numbers["rope_theta"]),  # type: ignore[arg-type]
        factor=float(numbers.get("factor", 1.0)),  # type: ignore[arg-type]
        low_freq_factor=float(numbers.get("low_freq_factor", 1.0)),  # type: ignore[arg-type]
        high_freq_factor=float(numbers.get("high_freq_factor", 1.0)),  # type: ignore[arg-type]
        original_max_position=int(
            numbers.get("original_max_position_embeddings", 0)  # type: ignore[call-overload]
        ),
    )


def inverse_frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """Angle per position of each pair of dimensions: float32 [head_dim / 2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        return _llama3(frequencies, rope)
    return frequencies


def _llama3(frequencies: torch.Tensor, rope: Rope) -> torch.Tensor:
    """Slow frequencies are divided by the factor, fast ones kept, those between blended."""
    wavelengths = 2 * math.pi / frequencies
    longest = rope.original_max_position / rope.low_freq_factor
    shortest = rope.original_max_position / rope.high_freq_factor
    scaled = torch.where(wavelengths > longest, frequencies / rope.factor, frequencies)
    span = rope.high_freq_factor - rope.low_freq_factor
    blend = (rope.original_max_position / wavelengths - rope.low_freq_factor) / span
    blended = (1 - blend) * scaled / rope.factor + blend * scaled
    between = (wavelengths >= shortest) & (wavelengths <= longest)
    return torch.where(between, blended, scaled)


def rope_tables(
    rope: Rope, *, head_dim: int, positions: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines: two tensors [positions, head_dim / 2], rounded from float32."""
    angles = torch.outer(torch.arange(positions).float(), inverse_frequencies(rope, head_dim))
    return angles.cos().to(dtype), angles.sin_().to(dtype)


def _unsupported(feature: str, path: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{path} needs {feature}, which Pagoda does not implement", path=path, feature=feature
    )
