"""config.json is implemented in full or refused by name."""

from __future__ import annotations

import json

import pytest
import torch

from pagoda.core.errors import ModelNotFound, UnsupportedModel
from pagoda.engine.config import parse_config, read_config
from pagoda.engine.rope import inverse_frequencies, parse_rope, rope_tables

BASE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


def test_a_plain_configuration_is_read():
    """Shapes, defaults and derived sizes of a Llama without optional keys."""
    config = parse_config(BASE, path="m")
    assert (config.heads, config.kv_heads, config.head_dim) == (4, 2, 16)
    assert (config.q_size, config.kv_size) == (64, 32)
    assert (config.rope.kind, config.rope.theta) == ("default", 10_000.0)
    assert not any((config.qkv_bias, config.output_bias, config.mlp_bias, config.qk_norm))


@pytest.mark.parametrize(
    ("architecture", "model_type", "qkv_bias", "qk_norm", "head_dim"),
    [
        ("LlamaForCausalLM", "llama", False, False, 16),
        ("MistralForCausalLM", "mistral", False, False, 16),
        ("Qwen2ForCausalLM", "qwen2", True, False, 16),
        ("Qwen3ForCausalLM", "qwen3", False, True, 128),
    ],
)
def test_what_an_architecture_implies(architecture, model_type, qkv_bias, qk_norm, head_dim):
    """Biases, head norms and the default head size follow from the architecture."""
    raw = BASE | {
        "architectures": [architecture],
        "model_type": model_type,
        "sliding_window": None,
    }
    config = parse_config(raw, path="m")
    assert (config.qkv_bias, config.qk_norm, config.head_dim) == (qkv_bias, qk_norm, head_dim)


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "architecture .*Gemma"),
        ({"architectures": []}, "architecture"),
        ({"architectures": ["LlamaForCausalLM", "Other"]}, "architecture"),
        ({"model_type": "qwen2"}, "model_type"),
        ({"quantization_config": {"bits": 4}}, "quantised weights"),
        ({"final_logit_softcapping": 30.0}, "soft-capping"),
        ({"attn_logit_softcapping": 50.0}, "soft-capping"),
        ({"attention_sinks": 4}, "attention sinks"),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"auto_map": {"AutoModel": "x.y"}}, "code shipped with the model"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"sliding_window": 4096}, "sliding window"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "layer_types"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope type 'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "odd": 1}}, "rope settings"),
        ({"rope_scaling": {"type": "linear"}}, "factor=None"),
        ({"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "default"}}, "disagree"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rope settings"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"pretraining_tp": 2}, "pretraining_tp"),
        ({"head_dim": 17}, "odd head_dim"),
        ({"num_key_value_heads": 3}, "4 attention heads over 3"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps"),
        ({"mystery_scale": 2.0}, "'mystery_scale'"),
        ({"mystery_switch": False}, "'mystery_switch'"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(change, feature):
    """Each feature that Pagoda lacks raises UnsupportedModel, which names it."""
    with pytest.raises(UnsupportedModel, match=feature) as caught:
        parse_config(BASE | change, path="some/model")
    assert caught.value.feature
    assert caught.value.path == "some/model"


def test_a_mistral_without_the_window_key_is_refused():
    """transformers assumes a window of 4096 there, so silence would change answers."""
    raw = BASE | {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    with pytest.raises(UnsupportedModel, match="sliding_window=4096, the default"):
        parse_config(raw, path="m")


@pytest.mark.parametrize("key", ["mlp_bias", "attention_bias"])
def test_a_bias_that_the_architecture_does_not_obey_is_refused(key):
    """Mistral has no biases: a configuration that asks for them is not taken at its word."""
    raw = BASE | {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": None,
        key: True,
    }
    with pytest.raises(UnsupportedModel, match=key):
        parse_config(raw, path="m")


@pytest.mark.parametrize(
    "change",
    [
        {"quantization_config": None},
        {"num_experts": 0},
        {"unknown_but_null": None},
        {"use_sliding_window": False},
        {"layer_types": ["full_attention", "full_attention"]},
        {"eos_token_id": [1, 2], "use_cache": False},
    ],
)
def test_features_that_are_off_change_nothing(change):
    """Null, zero or harmless keys give the plain configuration."""
    assert parse_config(BASE | change, path="m") == parse_config(BASE, path="m")


@pytest.mark.parametrize("content", [None, "{", "[1]"])
def test_a_missing_or_damaged_file_is_model_not_found(tmp_path, content):
    """No config.json, or one that is not a JSON object."""
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "scaling",
    [None, {"rope_type": "linear", "factor": 3.0}, LLAMA3],
    ids=["default", "linear", "llama3"],
)
def test_frequencies_are_transformers_bits(scaling):
    """Inverse frequencies equal transformers' rope functions bit for bit."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    raw = BASE | {"rope_theta": 5000.0} | ({"rope_scaling": scaling} if scaling else {})
    settings = {"rope_theta": 5000.0, "rope_type": "default"} | (scaling or {})
    reference = LlamaRotaryEmbedding(
        transformers.LlamaConfig(
            **{k: v for k, v in BASE.items() if k not in {"architectures", "model_type"}},
            rope_parameters=settings,
        )
    )
    rope = parse_rope(raw, path="m")
    assert torch.equal(inverse_frequencies(rope, 16), reference.inv_freq)
    cosines, sines = rope_tables(rope, head_dim=16, positions=400, dtype=torch.bfloat16)
    expected = reference(torch.zeros(1, 1, dtype=torch.bfloat16), torch.arange(400)[None])
    assert torch.equal(cosines, expected[0][0, :, :8])
    assert torch.equal(sines, expected[1][0, :, :8])


def test_the_configuration_is_json_safe(tmp_path):
    """A file and the object it holds give the same configuration."""
    (tmp_path / "config.json").write_text(json.dumps(BASE | {"rope_scaling": LLAMA3}))
    assert read_config(tmp_path) == parse_config(BASE | {"rope_scaling": LLAMA3}, path="m")
