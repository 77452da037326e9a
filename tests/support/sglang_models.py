"""Tiny checkpoints for the real SGLang: random weights from a seed, large enough for an answer to
depend on every token of its prompt.

Llama has 4 layers with 2 KV heads of 32: 1 KiB of bf16 keys and values a token. DeepSeek has
4 layers that keep one latent vector of 64 and 32 rotated keys (MLA): 768 bytes a token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

VOCABULARY = 512
_SEED = 0
_COMMON: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "initializer_range": 0.15,
    "bos_token_id": 257,
    "eos_token_id": 258,
    "dtype": "bfloat16",
}


def _llama() -> Any:
    """A Llama that groups its four heads in twos."""
    return LlamaForCausalLM(LlamaConfig(**_COMMON, num_key_value_heads=2, head_dim=32))


def _deepseek() -> Any:
    """A DeepSeek-V2 without experts: multi-head latent attention."""
    config = DeepseekV2Config(
        **_COMMON,
        num_key_value_heads=4,
        kv_lora_rank=64,
        q_lora_rank=None,
        qk_rope_head_dim=32,
        qk_nope_head_dim=32,
        v_head_dim=32,
        first_k_dense_replace=4,
        moe_layer_freq=1,
        rope_parameters={
            "rope_type": "yarn",  # SGLang has no other for DeepSeek on a CPU
            "rope_theta": 10_000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 1024,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    )
    return DeepseekV2ForCausalLM(config)


def _bytes_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: number for number, letter in enumerate(letters)}
    words.update({"<unk>": 256, "<s>": 257, "</s>": 258})
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def write(kind: str, directory: Path) -> Path:
    """Write a "llama" or a "deepseek" there."""
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        model = {"llama": _llama, "deepseek": _deepseek}[kind]()
    model.to(torch.bfloat16).save_pretrained(directory)
    _bytes_tokenizer().save_pretrained(directory)
    return directory
