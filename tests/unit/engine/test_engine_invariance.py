"""A token's KV and logits are the same bits however its sequence was computed."""

from __future__ import annotations

import random

import pytest
import torch
from segment_runs import blocks_for, fill_pool, kv_bytes, run_chunks, tokens_of

from pagoda.engine.linear import can_pack
from pagoda.engine.runner import Runner, Segment
from pagoda.engine.weights import load_model

LENGTH = 624  # past two chunks of 256 keys, a multiple of 16 but not of 64

DTYPES = pytest.mark.parametrize("dtype", ["fp32", "bf16"])
SHAPES = pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(3, 3, 64), (6, 2, 32), (4, 1, 128), (8, 1, 64)]
)


@pytest.fixture(params=["fp32", "bf16"])
def runner(request, tiny_model, native_kernels):
    """A runner with the C kernels over a tiny model."""
    if not can_pack({"fp32": torch.float32, "bf16": torch.bfloat16}[request.param]):
        pytest.skip("no packed products: this build of torch lacks oneDNN for the dtype")
    model = load_model(tiny_model("Qwen3ForCausalLM"), dtype=request.param)
    made = Runner(model, num_blocks=96, native=True)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(6))
def test_chunks_anywhere_give_the_same_bits(runner, seed):
    """Any cut of a prompt, at any token, leaves the same KV and the same logits."""
    tokens, blocks = tokens_of(LENGTH), blocks_for(LENGTH, runner=runner, seed=1)
    ends = [*sorted(random.Random(seed).sample(range(1, LENGTH), 5)), LENGTH]
    other = blocks_for(LENGTH, runner=runner, seed=2 + seed)
    whole = run_chunks(runner, tokens, blocks, [LENGTH])
    whole_bytes = kv_bytes(runner, blocks)
    chunked = run_chunks(runner, tokens, other, ends)
    assert torch.equal(chunked[-1], whole[-1])
    assert kv_bytes(runner, other) == whole_bytes


def test_decode_gives_the_bits_of_prefill(runner):
    """Tokens computed one at a time leave the KV and logits of one prefill."""
    tokens = tokens_of(LENGTH)
    blocks, other = (blocks_for(LENGTH, runner=runner, seed=seed) for seed in (1, 2))
    stops = list(range(LENGTH - 120, LENGTH + 1))
    stepped = run_chunks(runner, tokens, blocks, stops)
    stepped_bytes = kv_bytes(runner, blocks)
    for row, stop in enumerate(stops[::17]):
        whole = run_chunks(runner, tokens[:stop], other, [stop])
        assert torch.equal(stepped[17 * row], whole[0])
    run_chunks(runner, tokens, other, [LENGTH])
    assert kv_bytes(runner, other) == stepped_bytes


def test_a_batch_gives_the_bits_of_each_alone(runner):
    """Prefills, chunks and decodes side by side compute what each computes alone."""
    pool = random.Random(3).sample(range(runner.num_blocks), 60)
    lengths = [(0, 70), (99, 1), (30, 45), (256, 1), (0, 1), (128, 16)]
    segments = []
    for index, (start, count) in enumerate(lengths):
        tokens = tokens_of(start + count, seed=index)
        blocks, pool = pool[: -(-(start + count) // 16)], pool[-(-(start + count) // 16) :]
        if start:
            runner.forward([Segment(tokens[:start], 0, blocks, False)])
        segments.append(Segment(tokens[start:], start, blocks, index != 2))
    together = runner.forward(segments)
    used = [kv_bytes(runner, segment.blocks) for segment in segments]
    wanting = [segment for segment in segments if segment.want_logits]
    alone = torch.cat([runner.forward([segment]) for segment in wanting])
    assert together.shape == (5, 199)
    assert torch.equal(together, alone)
    assert [kv_bytes(runner, segment.blocks) for segment in segments] == used


@pytest.mark.parametrize("restored", [16, 64, 320, 608])
def test_restored_blocks_give_the_bits_of_a_cold_run(runner, restored):
    """Blocks copied out, and back under other ids, continue as if never moved."""
    tokens, blocks = tokens_of(LENGTH), blocks_for(LENGTH, runner=runner, seed=1)
    cold = run_chunks(runner, tokens, blocks, [LENGTH])
    cold_bytes = kv_bytes(runner, blocks)
    saved = [bytes(runner.block_view(block)) for block in blocks[: restored // 16]]
    fill_pool(runner, 0)
    other = blocks_for(LENGTH, runner=runner, seed=9)
    for block, data in zip(other, saved, strict=False):
        runner.block_view(block)[:] = data
    warm = runner.forward([Segment(tokens[restored:], restored, other, True)])
    assert torch.equal(warm, cold)
    assert kv_bytes(runner, other) == cold_bytes


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("length", [1, 15, 17, 66, 255, 257])
def test_garbage_in_unused_places_does_not_matter(runner, native, length, tiny_model):
    """NaN where no token lies changes no bit of the logits."""
    if not native:
        runner = Runner(load_model(tiny_model()), num_blocks=40, native=False)
    tokens, blocks = tokens_of(length), blocks_for(length, runner=runner)
    fill_pool(runner, 0)
    clean = run_chunks(runner, tokens, blocks, [length])
    fill_pool(runner, 0xFF)
    dirty = run_chunks(runner, tokens, blocks, [length])
    assert clean.isfinite().all()
    assert torch.equal(clean, dirty)


@DTYPES
@SHAPES
@pytest.mark.usefixtures("native_kernels")
def test_every_shape_is_invariant(tiny_model, dtype, heads, kv_heads, head_dim):
    """Chunks, decode and prefill agree bit for bit in all head sizes and groups."""
    model = load_model(
        tiny_model(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim),
        dtype=dtype,
    )
    runner = Runner(model, num_blocks=50, native=True)
    tokens = tokens_of(272)
    blocks, other = (blocks_for(272, runner=runner, seed=seed) for seed in (1, 2))
    whole = run_chunks(runner, tokens, blocks, [272])
    whole_bytes = kv_bytes(runner, blocks)
    stepped = run_chunks(runner, tokens, other, [33, 161, 260, 270, 271, 272])
    assert torch.equal(whole[-1], stepped[-1])
    assert kv_bytes(runner, other) == whole_bytes


@DTYPES
def test_the_torch_path_agrees_with_itself_at_chunk_ends(tiny_model, dtype):
    """Chunks that end on multiples of 64 and restored prefixes that leave 16 tokens give
    the same bits in plain torch."""
    runner = Runner(load_model(tiny_model(), dtype=dtype), num_blocks=60, native=False)
    tokens, blocks = tokens_of(LENGTH), blocks_for(LENGTH, runner=runner, seed=1)
    whole = run_chunks(runner, tokens, blocks, [LENGTH])
    whole_bytes = kv_bytes(runner, blocks)
    other = blocks_for(LENGTH, runner=runner, seed=2)
    chunked = run_chunks(runner, tokens, other, [64, 256, LENGTH])
    assert torch.equal(chunked[-1], whole[-1])
    assert kv_bytes(runner, other) == whole_bytes
    tail = runner.forward([Segment(tokens[-16:], LENGTH - 16, other, True)])
    assert torch.equal(tail, whole)
