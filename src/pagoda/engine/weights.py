"""The weights of a model: expected tensors, checks against the files, loading and packing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch

from pagoda.core.errors import ModelNotFound, UnsupportedModel
from pagoda.engine.checkpoint import Checkpoint
from pagoda.engine.config import ModelConfig, read_config
from pagoda.engine.linear import Linear

DtypeName = Literal["auto", "bf16", "fp32"]
_TORCH_DTYPES: Final = {"bf16": torch.bfloat16, "fp32": torch.float32}
_EMBEDDING: Final = "model.embed_tokens.weight"
_HEAD: Final = "lm_head.weight"
# A tied output matrix is packed as a second copy only up to here: the memory budget beside
# the weights is 500 MB, half of it torch itself.
_TIED_COPY_LIMIT_BYTES: Final = 160 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One decoder layer. qkv and gate_up are the rows of their parts, one after another."""

    input_norm: torch.Tensor
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """All weights; `embedding` [vocab, hidden] is plain, every Linear is packed if it can be."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    head: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run: its configuration, weights and the dtype it computes in."""

    path: Path
    config: ModelConfig
    weights: ModelWeights
    dtype: torch.dtype


def load_model(path: str | Path, *, dtype: DtypeName = "auto") -> LoadedModel:
    """Load a Hugging Face directory (config.json and safetensors).

    "auto" computes in bf16 when the weights are stored so, else in fp32. Raises
    ModelNotFound when files are absent or damaged, UnsupportedModel when the architecture,
    a configuration key, or a missing, extra or mis-shaped tensor is not implemented.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise ModelNotFound(
            f"no model directory {directory}",
            path=str(directory),
            remedy="name a local Hugging Face model directory",
        )
    config = read_config(directory)
    with Checkpoint(directory) as checkpoint, torch.inference_mode():
        _check_tensors(config, checkpoint)
        chosen = _choose_dtype(checkpoint, dtype)
        weights = _Loader(config, checkpoint, chosen).model()
    return LoadedModel(path=directory, config=config, weights=weights, dtype=chosen)


def _choose_dtype(checkpoint: Checkpoint, name: DtypeName) -> torch.dtype:
    if name != "auto":
        return _TORCH_DTYPES[name]
    stored = {entry.dtype for entry in checkpoint.entries.values()}
    return torch.bfloat16 if stored == {torch.bfloat16} else torch.float32


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a checkpoint of this configuration must have."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        _EMBEDDING: (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tied_embeddings:
        shapes[_HEAD] = (config.vocab_size, hidden)
    for layer in range(config.layers):
        shapes.update(
            {f"model.layers.{layer}.{name}": shape for name, shape in _layer_tensors(config)}
        )
    return shapes


def _layer_tensors(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    linears = (
        ("self_attn.q_proj", config.q_size, hidden, config.qkv_bias),
        ("self_attn.k_proj", config.kv_size, hidden, config.qkv_bias),
        ("self_attn.v_proj", config.kv_size, hidden, config.qkv_bias),
        ("self_attn.o_proj", hidden, config.q_size, config.output_bias),
        ("mlp.gate_proj", inner, hidden, config.mlp_bias),
        ("mlp.up_proj", inner, hidden, config.mlp_bias),
        ("mlp.down_proj", hidden, inner, config.mlp_bias),
    )
    for name, rows, columns, bias in linears:
        yield f"{name}.weight", (rows, columns)
        if bias:
            yield f"{name}.bias", (rows,)
    yield "input_layernorm.weight", (hidden,)
    yield "post_attention_layernorm.weight", (hidden,)
    if config.qk_norm:
        yield "self_attn.q_norm.weight", (config.head_dim,)
        yield "self_attn.k_norm.weight", (config.head_dim,)


def _check_tensors(config: ModelConfig, checkpoint: Checkpoint) -> None:
    expected = expected_tensors(config)
    for name, shape in expected.items():
        entry = checkpoint.entries.get(name)
        if entry is None:
            raise _unsupported(f"a checkpoint without {name}", checkpoint)
        if entry.shape != shape:
            raise _unsupported(f"{name} of shape {entry.shape}, not {shape}", checkpoint)
    for name in checkpoint.entries.keys() - expected.keys():
        # Old Llama checkpoints carry the rope frequencies, which the configuration implies.
        if name.endswith(".self_attn.rotary_emb.inv_freq"):
            continue
        if name == _HEAD and _same_bytes(checkpoint, _HEAD, _EMBEDDING):
            continue
        raise _unsupported(f"the extra tensor {name}", checkpoint)


def _same_bytes(checkpoint: Checkpoint, first: str, second: str) -> bool:
    one, other = checkpoint.entries[first], checkpoint.entries[second]
    return (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(
        checkpoint.read(first, one.dtype), checkpoint.read(second, other.dtype)
    )


def _unsupported(feature: str, checkpoint: Checkpoint) -> UnsupportedModel:
    return UnsupportedModel(
        f"{checkpoint.path} has {feature}, which Pagoda does not implement",
        path=str(checkpoint.path),
        feature=feature,
        remedy="check that config.json belongs to these weights",
    )


class _Loader:
    """Reads and packs layer by layer, so that one layer at most is in memory twice."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, dtype: torch.dtype) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._dtype = dtype

    def model(self) -> ModelWeights:
        embedding = self._tensor(_EMBEDDING)
        return ModelWeights(
            embedding=embedding,
            layers=tuple(self._layer(index) for index in range(self._config.layers)),
            final_norm=self._tensor("model.norm.weight"),
            head=self._head(embedding),
        )

    def _head(self, embedding: torch.Tensor) -> Linear:
        if self._config.tied_embeddings:
            return Linear(embedding, pack=embedding.nbytes <= _TIED_COPY_LIMIT_BYTES)
        return Linear(self._tensor(_HEAD))

    def _layer(self, index: int) -> LayerWeights:
        config, prefix = self._config, f"model.layers.{index}."
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        qkv = [attention + name for name in ("q_proj", "k_proj", "v_proj")]
        return LayerWeights(
            input_norm=self._tensor(prefix + "input_layernorm.weight"),
            qkv=self._linear(qkv, bias=config.qkv_bias),
            q_norm=self._tensor(attention + "q_norm.weight") if config.qk_norm else None,
            k_norm=self._tensor(attention + "k_norm.weight") if config.qk_norm else None,
            output=self._linear([attention + "o_proj"], bias=config.output_bias),
            mlp_norm=self._tensor(prefix + "post_attention_layernorm.weight"),
            gate_up=self._linear([mlp + "gate_proj", mlp + "up_proj"], bias=config.mlp_bias),
            down=self._linear([mlp + "down_proj"], bias=config.mlp_bias),
        )

    def _tensor(self, name: str) -> torch.Tensor:
        return self._checkpoint.read(name, self._dtype)

    def _linear(self, names: list[str], *, bias: bool) -> Linear:
        weight = self._stacked([f"{name}.weight" for name in names])
        return Linear(weight, self._stacked([f"{name}.bias" for name in names]) if bias else None)

    def _stacked(self, names: list[str]) -> torch.Tensor:
        shapes = [self._checkpoint.entries[name].shape for name in names]
        rows = sum(shape[0] for shape in shapes)
        stacked = torch.empty((rows, *shapes[0][1:]), dtype=self._dtype)
        first = 0
        for name, shape in zip(names, shapes, strict=True):
            self._checkpoint.read_into(name, stacked[first : first + shape[0]])
            first += shape[0]
        return stacked
