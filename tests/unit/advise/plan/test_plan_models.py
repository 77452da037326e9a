"""Models: the catalogue is consistent, config.json is read by family, nothing is guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.advise.plan.catalogue import find_gpu, find_model, gpus, models
from pagoda.advise.plan.hfconfig import read_model
from pagoda.core.errors import ModelError, ModelNotFound, SettingsError, UnsupportedModel
from pagoda.core.sizing import AttentionLayers, LatentLayers, Parallel, StateLayers, kv_dtype

BF16 = kv_dtype("bf16")

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
QWEN3_MOE = LLAMA_8B | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "max_position_embeddings": 163840,
    "vocab_size": 129280,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}
GEMMA3_1B = {
    "architectures": ["Gemma3ForCausalLM"],
    "hidden_size": 1152,
    "num_hidden_layers": 26,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
GEMMA4_E2B = GEMMA3_1B | {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "hidden_size": 1536,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "global_head_dim": 512,
    "num_kv_shared_layers": 20,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
}
QWEN3_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"],
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262144,
    "dtype": "bfloat16",
}
NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"],
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "hidden_size": 2688,
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}


def _write(tmp_path: Path, config: dict[str, Any]) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", sorted(models()))
def test_catalogue_entries_are_consistent(name: str) -> None:
    """Layers add up, query heads are a multiple of KV heads, a source is named."""
    facts = models()[name]
    kept = sum(group.layers for group in facts.kv.groups) + facts.kv.shared_layers
    assert kept == facts.layers or facts.notes
    assert facts.token_params() <= facts.total_params()
    assert "/" in facts.source
    for group in facts.kv.groups:
        if isinstance(group, AttentionLayers):
            assert facts.q_heads % group.kv_heads == 0


@pytest.mark.parametrize("name", sorted(gpus()))
def test_gpu_entries_are_consistent(name: str) -> None:
    """Every GPU names a source, and its fp8 rate is about twice its bf16 rate."""
    facts = gpus()[name]
    assert facts.source
    assert facts.memory_bytes > 10 << 30
    if facts.fp8_flops is not None:
        assert facts.fp8_flops / facts.bf16_flops == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA_8B, "llama-3.1-8b"),
        (QWEN3_MOE, "qwen3-30b-a3b"),
        (DEEPSEEK_V3, "deepseek-v3"),
        (GEMMA3_1B, "gemma-3-1b"),
        (GEMMA4_E2B, "gemma-4-e2b"),
        (QWEN3_NEXT, "qwen3-next-80b-a3b"),
        (NEMOTRON, "nemotron-3-nano-30b-a3b"),
    ],
)
def test_config_and_catalogue_agree(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    """A config.json read by its family gives the same layers as the catalogue's entry."""
    read, listed = read_model(_write(tmp_path, config)), find_model(name)
    assert read.kv == listed.kv
    assert (read.layers, read.hidden, read.q_heads) == (
        listed.layers,
        listed.hidden,
        listed.q_heads,
    )


@pytest.mark.parametrize(
    ("config", "total_b", "active_b"),
    [(LLAMA_8B, 8.03, 8.03), (QWEN3_MOE, 30.53, 3.35), (DEEPSEEK_V3, 671, 37)],
)
def test_counted_parameters_match_the_model_cards(
    tmp_path: Path, config: dict[str, Any], total_b: float, active_b: float
) -> None:
    """Parameters counted from the architecture are the published ones, to their last digit."""
    facts = read_model(_write(tmp_path, config))
    assert facts.total_params() / 1e9 == pytest.approx(total_b, rel=0.002)
    assert facts.token_params() / 1e9 == pytest.approx(active_b, rel=0.03)


def test_sliding_layers_follow_the_config(tmp_path: Path) -> None:
    """Qwen2 slides only when told to; Mistral slides in every layer when it has a window."""
    qwen = LLAMA_8B | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096}
    still = read_model(_write(tmp_path, qwen | {"use_sliding_window": False}))
    assert [g.window for g in still.kv.token_groups] == [None]
    moving = read_model(
        _write(tmp_path, qwen | {"use_sliding_window": True, "max_window_layers": 28})
    )
    assert [(g.layers, g.window) for g in moving.kv.token_groups] == [(28, None), (4, 4096)]
    mistral = LLAMA_8B | {"architectures": ["MistralForCausalLM"], "sliding_window": 4096}
    assert [g.window for g in read_model(_write(tmp_path, mistral)).kv.token_groups] == [4096]


def test_shared_layers_keep_nothing(tmp_path: Path) -> None:
    """Layers that reuse another's KV are counted, and cost no bytes."""
    facts = read_model(_write(tmp_path, GEMMA4_E2B))
    assert facts.kv.shared_layers == 20
    assert facts.kv.token_bytes(BF16, Parallel()) == 3 * 2048 + 12 * 1024


def test_an_indexer_is_part_of_a_latent(tmp_path: Path) -> None:
    """A sparse-attention indexer adds its fp8 elements and one scale to each token and layer."""
    config = DEEPSEEK_V3 | {"architectures": ["DeepseekV32ForCausalLM"], "index_head_dim": 128}
    (group,) = read_model(_write(tmp_path, config)).kv.groups
    assert isinstance(group, LatentLayers)
    assert group.indexer_bytes == 132
    listed = find_model("deepseek-v3.2").kv
    assert listed.groups == (group,)
    assert listed.token_bytes(BF16, Parallel(tp=8)) == 61 * (1152 + 132)


def test_unknown_architectures_are_refused(tmp_path: Path) -> None:
    """A layout this planner does not know is an error that names it and the way out."""
    with pytest.raises(UnsupportedModel) as caught:
        read_model(_write(tmp_path, LLAMA_8B | {"architectures": ["NeverSeenForCausalLM"]}))
    assert caught.value.feature == "NeverSeenForCausalLM"
    assert "--layers" in caught.value.remedy


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (LLAMA_8B, "num_hidden_layers"),
        (LLAMA_8B, "max_position_embeddings"),
        (DEEPSEEK_V3, "kv_lora_rank"),
        (GEMMA3_1B, "sliding_window"),
        (GEMMA3_1B, "sliding_window_pattern"),
        (QWEN3_NEXT, "linear_conv_kernel_dim"),
        (NEMOTRON, "ssm_state_size"),
        (NEMOTRON, "hybrid_override_pattern"),
    ],
)
def test_missing_facts_are_refused(tmp_path: Path, config: dict[str, Any], key: str) -> None:
    """A fact that the config does not state is an error that names it, not a default."""
    with pytest.raises(ModelError) as caught:
        read_model(_write(tmp_path, {k: v for k, v in config.items() if k != key}))
    assert key in caught.value.message


def test_the_checkpoint_says_how_the_cache_is_kept(tmp_path: Path) -> None:
    """KV is bf16 by dtype, fp8 where the checkpoint carries KV scales, unknown for float32."""
    scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}
    cases = (
        ({}, "bf16"),
        ({"quantization_config": scheme}, "fp8"),
        ({"torch_dtype": "float32"}, None),
    )
    for change, expected in cases:
        assert read_model(_write(tmp_path, LLAMA_8B | change)).kv_dtype == expected


def test_quantised_weights_are_narrower(tmp_path: Path) -> None:
    """The weights' width comes from the quantisation: fp8, or bits with a scale to a group."""
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    assert read_model(_write(tmp_path, DEEPSEEK_V3)).weight_bits == 8
    found = read_model(_write(tmp_path, LLAMA_8B | {"quantization_config": awq}))
    assert 4 < found.weight_bits < 4.25


def test_weight_files_are_measured(tmp_path: Path) -> None:
    """Where the weights are there, their size is theirs and not an estimate."""
    _write(tmp_path, LLAMA_8B)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 1000)
    assert read_model(tmp_path).bytes_of_weights() == 1000


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_broken_files_are_model_errors(tmp_path: Path, text: str) -> None:
    """A config.json that is no JSON object is a typed error."""
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError):
        read_model(tmp_path)


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 200_000),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", "", 3]), max_size=4),
    st.dictionaries(st.sampled_from(["bits", "group_size", "quant_method"]), st.integers(0, 9)),
)
_BASES = (LLAMA_8B, QWEN3_MOE, DEEPSEEK_V3, GEMMA3_1B, GEMMA4_E2B, QWEN3_NEXT, NEMOTRON)


@settings(deadline=None, max_examples=400)
@given(data=st.data(), base=st.sampled_from(_BASES))
def test_strange_configs_are_read_or_refused(
    data: st.DataObject, base: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever a config holds, the answer is facts with positive sizes or a ModelError."""
    keys = [*base, "quantization_config", "layer_types", "text_config", "sliding_window"]
    changes = data.draw(st.dictionaries(st.sampled_from(keys), _VALUES, min_size=1, max_size=3))
    try:
        facts = read_model(_write(tmp_path_factory.mktemp("config"), base | changes))
    except ModelError:
        return
    assert facts.layers > 0
    assert all(group.layers > 0 for group in facts.kv.groups)


def test_unknown_names_suggest_near_ones() -> None:
    """A misspelt model or GPU is an error that offers the nearest names."""
    with pytest.raises(ModelNotFound) as model:
        find_model("llama-3.1-71b")
    assert "llama-3.1-70b" in model.value.remedy
    with pytest.raises(SettingsError) as gpu:
        find_gpu("h10o")
    assert "h100" in gpu.value.remedy


def test_models_are_found_by_repository_too() -> None:
    """The catalogue answers to its short names and to the repositories'."""
    assert find_model("Qwen/Qwen3-8B") is find_model("qwen3-8b")
    assert find_gpu("NVIDIA H100 80GB HBM3").name == "h100"


def test_states_are_per_request(tmp_path: Path) -> None:
    """A hybrid's states do not grow with tokens: only its attention layers do."""
    facts = read_model(_write(tmp_path, QWEN3_NEXT))
    assert facts.kv.token_bytes(BF16, Parallel()) == 12 * 2048
    assert isinstance(facts.kv.groups[1], StateLayers)
    assert facts.kv.groups[1].layers == 36
