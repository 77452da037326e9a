"""Models that tests run on: the demonstration model, and tiny random checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

from pagoda.settings import storage

# A deadline for each example would make every property a timed test.
settings.register_profile("pagoda", deadline=None)
settings.load_profile("pagoda")

TinyModel = Callable[..., Path]

_SHAPE = {
    "vocab_size": 199,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5,
}


@pytest.fixture(scope="session", autouse=True)
def _no_check_by_chance() -> Iterator[None]:
    """At the default rate of the sampled check, none of an engine's first 6,930 requests with a
    cached prefix is chosen: a test that counts cached tokens must not fail once in a thousand."""
    with mock.patch.object(storage, "_check_key", return_value=b"tests 1405"):
        yield


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demonstration model's directory, named by PAGODA_DEMO_MODEL."""
    name = os.environ.get("PAGODA_DEMO_MODEL", "")
    if not name:
        pytest.skip("no demonstration model: PAGODA_DEMO_MODEL is not set")
    return Path(name)


@pytest.fixture
def tiny_model(tmp_path: Path) -> TinyModel:
    """Makes a small random checkpoint: tiny_model("LlamaForCausalLM", dtype="bfloat16", …).

    Further keywords override its configuration; `patch` overrides keys of the config.json
    that was written (None removes one).
    """

    def make(
        architecture: str = "LlamaForCausalLM",
        *,
        dtype: str = "float32",
        patch: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        directory = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        _write(architecture, dtype, _SHAPE | settings, directory)
        if patch:
            path = directory / "config.json"
            config = json.loads(path.read_text()) | patch
            kept = {k: v for k, v in config.items() if v is not None or k not in patch}
            path.write_text(json.dumps(kept))
        return directory

    return make


def _write(architecture: str, dtype: str, settings: dict[str, Any], directory: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    cls = getattr(transformers, architecture)
    if architecture == "MistralForCausalLM":
        settings = {"sliding_window": None} | settings
    model = cls(cls.config_class(**settings))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        # Norms near one, all else wide enough that attention is far from uniform.
        parameter.data = 1 + 0.2 * noise if name.endswith("norm.weight") else 0.15 * noise
    model.to(getattr(torch, dtype)).save_pretrained(directory)
