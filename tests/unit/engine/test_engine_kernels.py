"""The C kernels and the torch path compute the same steps, and attention is attention."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from segment_runs import blocks_for, kv_bytes, run_chunks, tokens_of

from pagoda.engine.batch import Segment, flatten
from pagoda.engine.kernels import KernelContext, TorchKernels
from pagoda.engine.layout import BlockLayout, BlockPool
from pagoda.engine.native import NativeKernels
from pagoda.engine.runner import Runner
from pagoda.engine.weights import load_model

SHAPES = [(3, 3, 64), (9, 3, 64), (4, 1, 128), (8, 1, 32), (6, 2, 20), (7, 7, 96)]
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
NO_NORM = SimpleNamespace(q_norm=None, k_norm=None)
POSITIONS = 700


def context_for(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> KernelContext:
    """Kernels bound to one layer whose rope turns nothing."""
    config = SimpleNamespace(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        q_size=heads * head_dim,
        kv_size=kv_heads * head_dim,
        norm_eps=1e-5,
    )
    layout = BlockLayout(layers=2, kv_heads=kv_heads, head_dim=head_dim, dtype=dtype)
    return KernelContext(
        config=config,
        pool=BlockPool(layout, 120),
        cosines=torch.ones(POSITIONS, head_dim // 2, dtype=dtype),
        sines=torch.zeros(POSITIONS, head_dim // 2, dtype=dtype),
        threads=2,
    )


def kernels_for(kind: str, context: KernelContext):
    """The kernels named by a test's parameter."""
    if kind == "torch":
        return TorchKernels(context)
    return NativeKernels(context, isa=0 if kind == "portable" else None)


def naive(qkv: torch.Tensor, heads: int, kv_heads: int, head_dim: int) -> torch.Tensor:
    """Causal attention of one whole sequence in float64."""
    q, k, v = qkv.double().split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], 1)
    q = q.view(-1, heads, head_dim).transpose(0, 1)
    k, v = (
        x.view(-1, kv_heads, head_dim).transpose(0, 1).repeat_interleave(heads // kv_heads, 0)
        for x in (k, v)
    )
    scores = q @ k.transpose(1, 2) / head_dim**0.5
    hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return (weights @ v).transpose(0, 1).flatten(1)


@pytest.mark.parametrize("kind", ["torch", "portable", "best"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
@pytest.mark.usefixtures("native_kernels")
def test_attention_is_softmax_attention(kind, dtype, heads, kv_heads, head_dim):
    """Paged attention over shuffled blocks, prefill then decode, equals the definition."""
    context = context_for(heads, kv_heads, head_dim, dtype)
    kernels = kernels_for(kind, context)
    generator = torch.Generator().manual_seed(head_dim)
    lengths = [(0, 531), (0, 3), (270, 1), (64, 80)]
    fresh = iter(torch.randperm(120, generator=generator).tolist())
    segments, rows, expected = [], [], []
    for start, count in lengths:
        blocks = [next(fresh) for _ in range(-(-(start + count) // 16))]
        qkv = torch.randn(start + count, (heads + 2 * kv_heads) * head_dim, generator=generator)
        qkv = (1.5 * qkv).to(dtype)
        if start:
            earlier = flatten(
                [Segment([0] * start, 0, blocks, False)], num_blocks=120, max_position=POSITIONS
            )
            kernels.attention(qkv[:start].clone(), 1, NO_NORM, earlier)
        segments.append(Segment([0] * count, start, blocks, False))
        rows.append(qkv[start:])
        expected.append(naive(qkv, heads, kv_heads, head_dim)[start:])
    batch = flatten(segments, num_blocks=120, max_position=POSITIONS)
    mixed = kernels.attention(torch.cat(rows).contiguous(), 1, NO_NORM, batch)
    difference = (mixed.double() - torch.cat(expected)).abs().max()
    assert difference < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("width", [576, 50])
@pytest.mark.usefixtures("native_kernels")
def test_row_steps_agree_with_torch(dtype, width):
    """Norm with residual and gated activation agree to a rounding step of the dtype."""
    context = context_for(2, 2, 32, dtype)
    generator = torch.Generator().manual_seed(0)
    residual, delta, weight = (
        torch.randn(size, generator=generator).to(dtype)
        for size in ((37, width), (37, width), (width,))
    )
    gate_up = (4 * torch.randn(37, 2 * width, generator=generator)).to(dtype)
    gate_up[0, :3] = torch.tensor([200.0, -200.0, 0.0], dtype=dtype)
    results = []
    for kernels in (TorchKernels(context), NativeKernels(context)):
        kept = residual.clone()
        results.append((kernels.add_norm(kept, delta, weight), kept, kernels.silu_mul(gate_up)))
    eps = torch.finfo(dtype).eps
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=2 * eps, atol=1e-6)
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.usefixtures("native_kernels")
def test_native_and_torch_runners_agree(tiny_model, dtype, architecture):
    """Both paths give nearby logits, and each goes on from the KV that the other left."""
    model = load_model(tiny_model(architecture), dtype=dtype)
    native, plain = (Runner(model, num_blocks=20, native=choice) for choice in (True, False))
    tokens, blocks = tokens_of(256), blocks_for(256, runner=native)
    tolerance = 2e-4 if dtype == "fp32" else 0.25
    expected = run_chunks(plain, tokens, blocks, [200, 256])
    found = run_chunks(native, tokens, blocks, [200, 256])
    assert (expected - found).abs().max() < tolerance
    for block in blocks:
        plain.block_view(block)[:] = native.block_view(block)
    crossed = plain.forward([Segment(tokens[240:], 240, blocks, True)])
    assert (crossed[0] - found[-1]).abs().max() < tolerance
    assert kv_bytes(plain, blocks[:15]) == kv_bytes(native, blocks[:15])
    assert plain.layout_id == native.layout_id
    assert plain.kernel_id == "torch"
    assert native.kernel_id.startswith("native")


@pytest.mark.usefixtures("native_kernels")
def test_threads_do_not_change_bits(tiny_model):
    """One thread and two give the same bits."""
    model = load_model(tiny_model(), dtype="bf16")
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        runner = Runner(model, num_blocks=40, native=True, threads=threads)
        results.append(run_chunks(runner, tokens_of(600), list(range(38)), [512, 590, 599, 600]))
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
