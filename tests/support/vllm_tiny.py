"""Many small requests to a real vLLM: a tiny random model in float32, prompts, and their answers.

In float32 an answer does not depend on which requests share a step: what was computed once, and
found again on the device, is the answer whatever is restored and in whatever company.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from vllm_harness import Child

SHAPE = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
}
LLM = {"dtype": "float32", "block_size": 32, "skip_tokenizer_init": True}
AT_ONCE = 8
_PROMPT_TOKENS = 200  # six blocks, and 8 tokens
ANSWER_TOKENS = 6

Prompt = tuple[int, ...]


def prompts_of(seed: int, count: int) -> list[Prompt]:
    """Prompts of random tokens, no two with a common block."""
    rng = random.Random(seed)
    return [tuple(rng.randrange(1, 512) for _ in range(_PROMPT_TOKENS)) for _ in range(count)]


def ask(child: Child, prompts: Sequence[Prompt]) -> list[dict[str, Any]]:
    """Answers to prompts, at most AT_ONCE of them under way."""
    answers: list[dict[str, Any]] = []
    for first in range(0, len(prompts), AT_ONCE):
        some = list(map(list, prompts[first : first + AT_ONCE]))
        answers += child.do("many", prompts=some, tokens=ANSWER_TOKENS)["answers"]
    return answers


def truth(child: Child, prompts: Sequence[Prompt]) -> dict[Prompt, list[int]]:
    """What the engine computes, where it says the same with the prompt found on the device."""
    cold, local = ask(child, prompts), ask(child, prompts)
    assert not any(one["cached"] for one in cold)
    assert all(one["cached"] for one in local)
    found = {
        prompt: one["tokens"]
        for prompt, one, other in zip(prompts, cold, local, strict=True)
        if one["tokens"] == other["tokens"]
    }
    assert len(found) > 0.9 * len(prompts), "float32 makes answers comparable"
    answers = {tuple(tokens) for tokens in found.values()}
    assert len(answers) > 0.9 * len(found), "answers depend on their prompts"
    return found
