"""The engine computes what transformers' own models compute."""

from __future__ import annotations

from importlib import resources

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# After the skips: the engine needs torch.
from pagoda.engine.native import extension  # noqa: E402
from pagoda.engine.runner import Runner, Segment  # noqa: E402
from pagoda.engine.weights import load_model  # noqa: E402

MOST_DIFFERENCE = 1e-4  # of fp32 logits, full prompt

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
CASES = {
    "llama": ("LlamaForCausalLM", {}),
    "llama-tied": ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    "llama-biases": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "llama3-rope": ("LlamaForCausalLM", {"rope_parameters": LLAMA3_ROPE}),
    "linear-rope": (
        "LlamaForCausalLM",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.5}},
    ),
    "mistral": ("MistralForCausalLM", {}),
    "mistral-wide-heads": ("MistralForCausalLM", {"head_dim": 64}),
    "qwen2": ("Qwen2ForCausalLM", {"hidden_size": 192}),
    "qwen2-tied": ("Qwen2ForCausalLM", {"hidden_size": 192, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "qwen3-biases": ("Qwen3ForCausalLM", {"attention_bias": True, "num_key_value_heads": 1}),
}


def random_tokens(count: int, vocab: int) -> list[int]:
    """The same random prompt for every test."""
    return torch.randint(vocab, (count,), generator=torch.Generator().manual_seed(7)).tolist()


def reference(directory, tokens, dtype):
    """transformers' eager logits, float32 [tokens, vocab]."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager"
    )
    with torch.inference_mode():
        return model.eval()(torch.tensor([tokens])).logits[0].float()


def every_logit(runner: Runner, tokens: list[int]):
    """Our logits after every token: a prefill, then each token again on top of its KV."""
    blocks = list(range(-(-len(tokens) // 16)))
    runner.forward([Segment(tokens, 0, blocks, False)])
    return runner.forward([Segment([token], at, blocks, True) for at, token in enumerate(tokens)])


@pytest.mark.parametrize("native", [True, False], ids=["native", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_fp32_logits_agree_with_eager(tiny_model, case, native):
    """Every token's logits of a random checkpoint differ by at most 1e-4."""
    if native and extension() is None:
        pytest.skip("no C extension: pagoda._native is not built")
    architecture, settings = CASES[case]
    directory = tiny_model(architecture, **settings)
    tokens = random_tokens(300, 199)
    runner = Runner(load_model(directory, dtype="fp32"), num_blocks=20, native=native)
    expected = reference(directory, tokens, torch.float32)
    found = every_logit(runner, tokens)
    assert expected.std() > 0.5, "the checkpoint must say something"
    assert (found - expected).abs().max() <= MOST_DIFFERENCE


def test_old_rope_settings_mean_what_the_new_ones_do(tiny_model):
    """rope_theta with rope_scaling gives the bits of rope_parameters."""
    new = tiny_model(rope_parameters=LLAMA3_ROPE)
    scaling = {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"}
    old = tiny_model(
        rope_parameters=LLAMA3_ROPE,
        patch={"rope_parameters": None, "rope_theta": 10000.0, "rope_scaling": scaling},
    )
    tokens, blocks = random_tokens(300, 199), list(range(19))
    first, second = (
        Runner(load_model(directory), num_blocks=19).forward([Segment(tokens, 0, blocks, True)])
        for directory in (new, old)
    )
    assert torch.equal(first, second)


@pytest.mark.engine
def test_demo_model_fp32_agrees_over_a_full_prompt(demo_model):
    """The demonstration model's fp32 logits differ by at most 1e-4 over 512 tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(demo_model)
    document = (resources.files("pagoda.lab") / "document.md").read_text(encoding="utf-8")
    tokens = tokenizer(document).input_ids[:512]
    expected = reference(demo_model, tokens, torch.float32)
    runner = Runner(load_model(demo_model, dtype="fp32"), num_blocks=32)
    found = every_logit(runner, tokens)
    assert (found - expected).abs().max() <= MOST_DIFFERENCE


@pytest.mark.engine
def test_demo_model_bf16_greedy_text_agrees(demo_model):
    """Each token that the demonstration model writes in bf16 is transformers' best one, or
    within a rounding step of it: bf16 logits around 20 are 0.125 apart, so ties are common."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(demo_model)
    written = tokenizer("The capital of France is").input_ids
    prompt, computed = len(written), 0
    runner = Runner(load_model(demo_model, dtype="bf16"), num_blocks=8)
    while len(written) < prompt + 40:
        segment = Segment(written[computed:], computed, range(8), True)
        computed = len(written)
        written.append(int(runner.forward([segment])[0].argmax()))
    judged = reference(demo_model, written[:-1], torch.bfloat16)[prompt - 1 :]
    chosen = judged.gather(1, torch.tensor(written[prompt:])[:, None])[:, 0]
    behind = judged.amax(dim=1) - chosen
    assert behind.max() <= 0.25
    assert (behind == 0).float().mean() > 0.9
