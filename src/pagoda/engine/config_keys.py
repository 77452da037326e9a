"""What each key of a config.json means to Pagoda: implemented, harmless, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What an architecture's name alone decides, beside its configuration keys.

    `head_dim` and `default_window` are what a reader must assume when the key is absent;
    `window_needs_switch`: sliding_window has no effect unless use_sliding_window is true;
    `attention_bias_key`, `mlp_bias_key`: the architecture obeys that key.
    """

    model_type: str
    qkv_bias: bool = False
    qk_norm: bool = False
    head_dim: int | None = None
    default_window: int | None = None
    window_needs_switch: bool = False
    attention_bias_key: bool = False
    mlp_bias_key: bool = False


ARCHITECTURES: Final[dict[str, Architecture]] = {
    "LlamaForCausalLM": Architecture(
        model_type="llama", attention_bias_key=True, mlp_bias_key=True
    ),
    "MistralForCausalLM": Architecture(model_type="mistral", default_window=4096),
    "Qwen2ForCausalLM": Architecture(model_type="qwen2", qkv_bias=True, window_needs_switch=True),
    "Qwen3ForCausalLM": Architecture(
        model_type="qwen3",
        qk_norm=True,
        head_dim=128,
        window_needs_switch=True,
        attention_bias_key=True,
    ),
}

# Keys that decide the arithmetic, and that Pagoda obeys.
_IMPLEMENTED_WORDS: Final = (
    "architectures model_type vocab_size hidden_size intermediate_size num_hidden_layers "
    "num_attention_heads num_key_value_heads head_dim max_position_embeddings rms_norm_eps "
    "rope_theta rope_scaling rope_parameters original_max_position_embeddings "
    "tie_word_embeddings attention_bias mlp_bias use_sliding_window sliding_window "
    "layer_types"
)
IMPLEMENTED: Final = frozenset(_IMPLEMENTED_WORDS.split())

# Keys that change nothing in a forward pass: provenance, training, text, sampling defaults.
_HARMLESS_WORDS: Final = (
    "_name_or_path _model_name_or_path _attn_implementation_autoset transformers_version "
    "torch_dtype dtype "
    "bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id "
    "decoder_start_token_id forced_bos_token_id forced_eos_token_id "
    "initializer_range use_cache attention_dropout max_window_layers "
    "output_attentions output_hidden_states return_dict return_dict_in_generate "
    "id2label label2id num_labels problem_type tokenizer_class prefix finetuning_task "
    "task_specific_params torchscript is_llama_config transformers.js_config "
    "unsloth_fixed unsloth_version max_length min_length do_sample temperature top_k top_p "
    "typical_p repetition_penalty length_penalty no_repeat_ngram_size early_stopping "
    "num_beams num_return_sequences use_bfloat16"
)
HARMLESS: Final = frozenset(_HARMLESS_WORDS.split())

# Keys that would change the arithmetic unless they have one of these values.
NEUTRAL_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "hidden_act": ("silu",),
    "pretraining_tp": (1, None),
    "rope_interleaved": (False, None),
    "partial_rotary_factor": (1, None),
    "is_encoder_decoder": (False, None),
    "is_decoder": (False, True, None),
    "add_cross_attention": (False, None),
    "cross_attention_hidden_size": (None,),
    "chunk_size_feed_forward": (0, None),
    "tie_encoder_decoder": (False, None),
    "tie_last_hidden_states": (True, None),
}

# Keys that switch on a feature by name; a false or empty value leaves it off.
FEATURES: Final[dict[str, str]] = {
    "quantization_config": "quantised weights",
    "compression_config": "compressed weights",
    "attn_logit_softcapping": "soft-capping of attention scores",
    "final_logit_softcapping": "soft-capping of logits",
    "attention_sinks": "attention sinks",
    "num_sink_tokens": "attention sinks",
    "num_experts": "a mixture of experts",
    "num_local_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
    "moe_intermediate_size": "a mixture of experts",
    "attention_multiplier": "scaled attention scores",
    "embedding_multiplier": "scaled embeddings",
    "residual_multiplier": "scaled residuals",
    "logits_scaling": "scaled logits",
    "no_rope_layers": "layers without rope",
    "pruned_heads": "pruned heads",
    "per_layer_config": "layers of different shapes",
    "auto_map": "code shipped with the model",
}
