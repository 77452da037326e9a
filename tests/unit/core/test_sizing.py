"""Properties of the KV arithmetic: monotone, divided as engines divide, rounded to blocks."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pagoda.core.errors import SettingsError
from pagoda.core.sizing import (
    AttentionLayers,
    Budget,
    KvShape,
    LatentLayers,
    Parallel,
    StateLayers,
    heads_per_rank,
    kv_dtype,
    layers_per_stage,
    sglang_capacity,
    uniform_capacity,
    vllm_capacity,
)

GIB = 1 << 30
DTYPES = st.sampled_from(["bf16", "fp16", "fp8", "int8", "nvfp4", "fp32"]).map(kv_dtype)
HEADS = st.sampled_from([1, 2, 4, 8, 16, 32])
HEAD_DIMS = st.sampled_from([64, 80, 128, 256])
WINDOWS = st.none() | st.integers(min_value=16, max_value=8192)


def _attention(layers: int, **facts: int | None) -> KvShape:
    defaults = {"kv_heads": 8, "head_dim": 128}
    return KvShape(groups=(AttentionLayers(layers=layers, **(defaults | facts)),))


def _budget(**facts: int) -> Budget:
    defaults = {"available_bytes": 40 * GIB, "block_tokens": 16, "max_model_len": 8192}
    return Budget(**(defaults | facts))


@st.composite
def shapes(draw: st.DrawFn) -> KvShape:
    """Any mix of full, window and state layers that tensor parallelism 1 accepts."""
    heads, head_dim = draw(HEADS), draw(HEAD_DIMS)
    groups: list[AttentionLayers | StateLayers] = [
        AttentionLayers(
            layers=draw(st.integers(1, 96)), kv_heads=heads, head_dim=head_dim, window=window
        )
        for window in draw(st.lists(WINDOWS, min_size=1, max_size=3, unique=True))
    ]
    if draw(st.booleans()):
        elements = draw(st.integers(1, 1 << 20))
        groups.append(
            StateLayers(layers=draw(st.integers(1, 64)), heads=8, state_elements=elements)
        )
    return KvShape(groups=tuple(groups))


budgets = st.builds(
    Budget,
    available_bytes=st.integers(0, 1 << 38),
    block_tokens=st.sampled_from([1, 16, 32, 64, 128]),
    max_model_len=st.integers(1, 1 << 20),
    max_batched_tokens=st.integers(16, 1 << 14),
)
allocators = st.sampled_from([vllm_capacity, sglang_capacity])


def test_llama_70b_takes_327680_bytes_a_token() -> None:
    """80 layers of 8 KV heads of 128 in bf16 are 320 KiB a token, 40 KiB a rank of eight."""
    shape = _attention(80)
    assert shape.token_bytes(kv_dtype("bf16"), Parallel()) == 327_680
    assert shape.token_bytes(kv_dtype("bf16"), Parallel(tp=8)) == 40_960


@settings(deadline=None)
@given(heads=HEADS, head_dim=HEAD_DIMS, dtype=DTYPES, layers=st.integers(1, 200))
def test_bytes_grow_with_layers_and_heads(heads: int, head_dim: int, dtype, layers: int) -> None:
    """A token's bytes are proportional to layers and to KV heads."""
    one = _attention(1, kv_heads=1, head_dim=head_dim).token_bytes(dtype, Parallel())
    many = _attention(layers, kv_heads=heads, head_dim=head_dim).token_bytes(dtype, Parallel())
    assert many == one * layers * heads


@settings(deadline=None)
@given(heads=HEADS, tp=st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
def test_ranks_hold_every_head_at_least_once(heads: int, tp: int) -> None:
    """All ranks together hold each head; more ranks than heads replicate, never go below one."""
    mine = heads_per_rank(heads, tp)
    assert mine * tp >= heads
    assert mine >= 1
    assert mine * tp == max(heads, tp)


def test_more_ranks_than_heads_stop_saving_memory() -> None:
    """Past one KV head a rank, tensor parallelism no longer shrinks the cache."""
    shape, dtype = _attention(28, kv_heads=4), kv_dtype("bf16")
    sizes = [shape.token_bytes(dtype, Parallel(tp=tp)) for tp in (1, 2, 4, 8, 16)]
    assert sizes == [57_344, 28_672, 14_336, 14_336, 14_336]


@pytest.mark.parametrize(("heads", "tp"), [(8, 3), (8, 12), (6, 4), (2, 3)])
def test_uneven_heads_are_refused_with_sizes_that_work(heads: int, tp: int) -> None:
    """A tensor-parallel size that engines refuse is refused, and the remedy names good ones."""
    with pytest.raises(SettingsError) as caught:
        heads_per_rank(heads, tp)
    assert caught.value.key == "tp"
    assert str(heads) in caught.value.remedy


@settings(deadline=None)
@given(latent=st.integers(1, 2048), tp=st.integers(1, 64), dtype=DTYPES)
def test_latents_are_not_divided(latent: int, tp: int, dtype) -> None:
    """Every tensor-parallel rank keeps an MLA latent whole."""
    assume(latent * dtype.bits % 8 == 0)
    shape = KvShape(groups=(LatentLayers(layers=61, latent=latent),))
    assert shape.token_bytes(dtype, Parallel(tp=tp)) == shape.token_bytes(dtype, Parallel())


def test_packed_latents_have_their_own_size() -> None:
    """fp8_ds_mla packs a 576-element latent into 656 bytes, whatever its element size says."""
    shape = KvShape(groups=(LatentLayers(layers=61, latent=576),))
    assert shape.token_bytes(kv_dtype("fp8_ds_mla"), Parallel(tp=8)) == 61 * 656
    assert shape.token_bytes(kv_dtype("bf16"), Parallel(tp=8)) == 70_272


def test_scales_cost_what_their_format_says() -> None:
    """int8 carries four bytes beside each vector, nvfp4 one byte to sixteen elements, fp8 none."""
    sizes = {
        name: _attention(1, kv_heads=1).token_bytes(kv_dtype(name), Parallel())
        for name in ("fp8", "int8", "nvfp4", "bf16")
    }
    assert sizes == {"fp8": 256, "int8": 264, "nvfp4": 144, "bf16": 512}


@pytest.mark.parametrize("name", ["auto", "int3", ""])
def test_unknown_formats_are_refused(name: str) -> None:
    """A KV format whose size is not known is never guessed."""
    with pytest.raises(SettingsError) as caught:
        kv_dtype(name)
    assert caught.value.remedy


@settings(deadline=None)
@given(shape=shapes(), budget=budgets, dtype=DTYPES, allocator=allocators)
def test_tokens_are_whole_blocks_inside_memory(shape: KvShape, budget, dtype, allocator) -> None:
    """Tokens are a whole number of blocks, and never need more bytes than there are."""
    found = allocator(shape, dtype, Parallel(), budget)
    assert found.tokens % found.block_tokens == 0
    assert found.blocks >= 0
    assert found.tokens * shape.growth_bytes(dtype, Parallel()) <= budget.available_bytes


@settings(deadline=None)
@given(shape=shapes(), budget=budgets, dtype=DTYPES, more=st.integers(0, 1 << 36))
def test_more_memory_never_holds_less(shape: KvShape, budget: Budget, dtype, more: int) -> None:
    """Capacity is monotone in memory, for both engines' allocators."""
    larger = Budget(**(vars(budget) | {"available_bytes": budget.available_bytes + more}))
    for allocator in (vllm_capacity, sglang_capacity):
        before = allocator(shape, dtype, Parallel(), budget)
        after = allocator(shape, dtype, Parallel(), larger)
        assert after.tokens >= before.tokens
        assert after.concurrency >= before.concurrency


@settings(deadline=None)
@given(layers=st.integers(1, 200), pp=st.integers(1, 16))
def test_the_fullest_stage_decides(layers: int, pp: int) -> None:
    """Pipeline stages together hold every layer, and none more than the fullest."""
    assume(pp <= layers)
    fullest = layers_per_stage(layers, pp)
    assert fullest * pp >= layers
    assert (fullest - 1) * pp < layers


@settings(deadline=None)
@given(budget=budgets, window=st.integers(16, 8192))
def test_a_window_never_costs_concurrency(budget: Budget, window: int) -> None:
    """Sliding some layers never admits fewer requests than keeping them, a block or two apart."""
    mixed = KvShape(
        groups=(
            AttentionLayers(layers=8, kv_heads=8, head_dim=128),
            AttentionLayers(layers=8, kv_heads=8, head_dim=128, window=window),
        )
    )
    dtype = kv_dtype("bf16")
    grouped = vllm_capacity(mixed, dtype, Parallel(), budget)
    kept = uniform_capacity(mixed, dtype, Parallel(), budget)
    blocks = -(-budget.max_model_len // budget.block_tokens)
    assert grouped.concurrency >= kept.concurrency * 2 * blocks / (2 * blocks + 1) - 1


def test_padding_layers_cost_memory() -> None:
    """4 full and 22 window layers make seven groups of four: 28 layers are paid for."""
    shape = KvShape(
        groups=(
            AttentionLayers(layers=4, kv_heads=1, head_dim=256),
            AttentionLayers(layers=22, kv_heads=1, head_dim=256, window=512),
        )
    )
    found = vllm_capacity(shape, kv_dtype("bf16"), Parallel(), _budget())
    assert found.bytes_per_token == 28 * 1024
    assert any("2 padding layers" in note for note in found.assumptions)


@pytest.mark.parametrize(
    ("full", "speculative", "gib", "max_len", "logged"),
    [(13, 1, 24.05, 262_144, (482_080, 6.42)), (12, 0, 21.43, 131_072, (467_712, 11.79))],
)
def test_linear_attention_hybrids_match_logged_engines(
    full: int, speculative: int, gib: float, max_len: int, logged: tuple[int, float]
) -> None:
    """Qwen3.5-122B-A10B with fp8 KV, as two vLLM start-up logs of April 2026 print it.

    12 full layers of 2 KV heads of 256 (13 with the speculative layer), 36 gated delta
    layers of 64 value heads of 128 x 128 in float32: the attention block grows to 4,192
    (4,176) tokens so that it holds one state.
    """
    states = StateLayers(
        layers=36, heads=16, state_elements=64 * 128 * 128, conv_dim=12_288, conv_kernel=4
    )
    shape = KvShape(groups=(AttentionLayers(layers=full, kv_heads=2, head_dim=256), states))
    budget = Budget(
        available_bytes=int(gib * GIB),
        block_tokens=16,
        max_model_len=max_len,
        speculative_tokens=speculative,
    )
    found = vllm_capacity(shape, kv_dtype("fp8"), Parallel(), budget)
    assert (found.tokens, round(found.concurrency, 2)) == logged


def test_a_state_model_is_counted_in_requests() -> None:
    """A model without attention holds a fixed number of requests, however long they are."""
    shape = KvShape(groups=(StateLayers(layers=64, heads=8, state_elements=1 << 20),))
    counts = {
        vllm_capacity(shape, kv_dtype("bf16"), Parallel(), _budget(max_model_len=n)).concurrency
        for n in (1024, 65_536)
    }
    assert len(counts) == 1


def test_states_are_divided_by_heads() -> None:
    """A recurrent state is split over ranks, and refused where heads do not split."""
    shape = KvShape(groups=(StateLayers(layers=2, heads=8, state_elements=8_000),))
    assert shape.state_bytes(Parallel(tp=8)) * 8 == shape.state_bytes(Parallel())
    with pytest.raises(SettingsError):
        shape.state_bytes(Parallel(tp=3))


@settings(deadline=None)
@given(shape=shapes(), tokens=st.integers(1, 1 << 18), dtype=DTYPES)
def test_a_context_is_never_larger_than_all_its_tokens(shape: KvShape, tokens: int, dtype) -> None:
    """What a restore moves is bounded by every token in every layer plus the states."""
    held = shape.context_bytes(tokens, dtype, Parallel())
    every = tokens * shape.token_bytes(dtype, Parallel()) + shape.state_bytes(Parallel())
    assert tokens * shape.growth_bytes(dtype, Parallel()) <= held <= every


def test_sglang_splits_windows_by_its_ratio() -> None:
    """Full and window pools together fill the memory when window tokens are 0.8 of full ones."""
    shape = KvShape(
        groups=(
            AttentionLayers(layers=10, kv_heads=8, head_dim=128),
            AttentionLayers(layers=50, kv_heads=8, head_dim=128, window=1024),
        )
    )
    found = sglang_capacity(shape, kv_dtype("bf16"), Parallel(), _budget(block_tokens=1))
    layer = 4096
    used = found.tokens * layer * (10 + 0.8 * 50)
    assert 0.999 < used / (40 * GIB) <= 1


@pytest.mark.parametrize("facts", [{"layers": 0}, {"kv_heads": 0}, {"head_dim": -1}, {"window": 0}])
def test_facts_must_be_positive(facts: dict[str, int]) -> None:
    """A zero or negative architecture fact is an error that names it."""
    layers = facts.get("layers", 1)
    others = {k: v for k, v in facts.items() if k != "layers"}
    with pytest.raises(SettingsError) as caught:
        _attention(layers, **others)
    assert caught.value.key == next(iter(facts))


def test_memory_below_zero_is_refused() -> None:
    """Weights larger than the GPU are an error with a remedy, not a negative capacity."""
    with pytest.raises(SettingsError) as caught:
        _budget(available_bytes=-1)
    assert caught.value.key == "available_bytes"


def test_states_need_an_allocator_with_groups() -> None:
    """The allocator without groups refuses state layers instead of dropping them."""
    shape = KvShape(groups=(StateLayers(layers=1, heads=1, state_elements=8),))
    with pytest.raises(SettingsError):
        uniform_capacity(shape, kv_dtype("bf16"), Parallel(), _budget())


def test_more_stages_than_layers_are_refused() -> None:
    """A pipeline cannot have more stages than layers."""
    with pytest.raises(SettingsError) as caught:
        _attention(4).stage(5)
    assert caught.value.key == "pp"
