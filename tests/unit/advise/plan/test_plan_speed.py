"""Roofline, throughput and scaling: monotone, additive, refused where engines refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.advise.plan.catalogue import find_gpu, find_model, gpus, models
from pagoda.advise.plan.facts import GIB, Load
from pagoda.advise.plan.links import Efficiency, fabric_of, pcie_bytes_per_s
from pagoda.advise.plan.roofline import Deployment, attention_operations, decode_step, prefill
from pagoda.advise.plan.scaling import KNEE_GAIN, Point, Settings, curve, knee, point
from pagoda.advise.plan.throughput import Stalls, combined, throughput
from pagoda.core.errors import SettingsError
from pagoda.core.sizing import Budget, Parallel, kv_dtype

BF16 = kv_dtype("bf16")
MODELS = st.sampled_from(sorted(models())).map(find_model)
GPUS = st.sampled_from(sorted(gpus())).map(find_gpu)
BATCHES = st.floats(1, 512)
CONTEXTS = st.integers(16, 100_000)


def _deployment(model: str = "llama-3.1-8b", gpu: str = "h100", **sizes: int) -> Deployment:
    return Deployment(
        model=find_model(model), gpu=find_gpu(gpu), parallel=Parallel(**sizes), dtype=BF16
    )


def _settings(**changes: float) -> Settings:
    budget = Budget(available_bytes=0, block_tokens=16, max_model_len=8192)
    defaults = {"utilization": 0.9, "reserve": 2 * GIB, "occupancy": 0.7, "max_requests": 256}
    return Settings(budget=budget, **(defaults | changes))


@settings(deadline=None)
@given(model=MODELS, gpu=GPUS, batch=BATCHES, more=st.floats(1, 4), context=CONTEXTS)
def test_a_larger_batch_never_makes_a_step_shorter(model, gpu, batch, more, context) -> None:
    """A step takes at least as long for more requests, and no longer than in proportion."""
    deployment = Deployment(model=model, gpu=gpu, parallel=Parallel(), dtype=BF16)
    small = decode_step(deployment, batch, context).total_s
    large = decode_step(deployment, batch * more, context).total_s
    assert small <= large <= small * more * (1 + 1e-9)


@settings(deadline=None)
@given(model=MODELS, new=st.integers(1, 20_000), cached=CONTEXTS)
def test_a_cached_prefix_never_makes_a_prefill_longer(model, new: int, cached: int) -> None:
    """Computing after a cached prefix costs less than computing the prefix too."""
    deployment = Deployment(model=model, gpu=find_gpu("h100"), parallel=Parallel(), dtype=BF16)
    assert prefill(deployment, new, cached).total_s <= prefill(deployment, new + cached).total_s


@settings(deadline=None)
@given(model=MODELS, tokens=st.floats(1, 1e6))
def test_a_step_reads_no_more_than_all_weights(model, tokens: float) -> None:
    """Few tokens touch few experts, many touch all; a dense model is always read whole."""
    share = model.touched_weight_share(tokens)
    assert 0 < share <= 1
    if not model.experts:
        assert share == 1


def test_one_token_reads_the_active_parameters() -> None:
    """For one token the share of the weights is the active parameters' share of all."""
    model = find_model("qwen3-30b-a3b")
    expected = model.token_params() / model.total_params()
    assert model.touched_weight_share(1) == pytest.approx(expected)


def test_attention_counts_each_pair_once() -> None:
    """Over a short full-attention prompt: 4 * layers * heads * head size * n * n / 2."""
    model = find_model("llama-3.1-8b")
    assert attention_operations(model, 1000, 0) == 32 * 4 * 32 * 128 * 1000 * 500
    windowed = find_model("mistral-7b-v0.1")
    assert attention_operations(windowed, 10, 100_000) == 32 * 4 * 32 * 128 * 10 * 4096


def test_one_rank_needs_no_link() -> None:
    """Without tensor parallelism nothing is all-reduced."""
    assert decode_step(_deployment(), 32, 2000).comm_s == 0
    assert decode_step(_deployment(tp=2), 32, 2000).comm_s > 0


@settings(deadline=None)
@given(size=st.floats(1, 1e9), ranks=st.integers(2, 16))
def test_an_all_reduce_has_a_floor_and_a_slope(size: float, ranks: int) -> None:
    """Never below the latency, and never more than twice the message over the link."""
    fabric = fabric_of(find_gpu("a100-80"), Efficiency())
    took = fabric.all_reduce_s(size, ranks)
    assert fabric.latency_s <= took <= fabric.latency_s + 2 * size / fabric.bandwidth


@pytest.mark.parametrize(
    ("generation", "lanes", "gigabytes"),
    [(3, 16, 15.75), (4, 8, 15.75), (4, 16, 31.51), (5, 4, 15.75), (5, 16, 63.02)],
)
def test_pcie_rates(generation: int, lanes: int, gigabytes: float) -> None:
    """Rates are those of the specification after line coding."""
    assert pcie_bytes_per_s(generation, lanes) / 1e9 == pytest.approx(gigabytes, abs=0.01)


def test_impossible_links_are_refused() -> None:
    """A PCIe link that does not exist is an error."""
    with pytest.raises(SettingsError):
        pcie_bytes_per_s(4, 12)


@settings(deadline=None)
@given(batch=BATCHES, tp=st.sampled_from([1, 2, 4, 8]), miss=st.floats(0, 1), wait=st.floats(0, 1))
def test_the_formula_is_exact(batch: float, tp: int, miss: float, wait: float) -> None:
    """Throughput is gpus * compute / (1 + alpha + beta), and the times behind it add up."""
    load = Load(input_tokens=1000, output_tokens=200)
    deployment = _deployment(tp=tp)
    found = throughput(deployment, load, batch, Stalls(miss_rate=miss, miss_s=wait))
    formula = combined(found.gpus, found.compute_per_gpu, found.alpha_comm, found.beta_kv_miss)
    assert found.tokens_per_s == pytest.approx(formula)
    spent = found.prefill_s + found.decode_s * load.output_tokens / batch + miss * wait
    assert found.tokens_per_s == pytest.approx(load.output_tokens / spent)


@settings(deadline=None)
@given(shared=st.floats(0, 0.95))
def test_sharing_prefixes_never_costs_throughput(shared: float) -> None:
    """Input that an earlier request computed leaves more time for output."""
    load = Load(input_tokens=4000, output_tokens=200)
    alone = throughput(_deployment(), load, 32).tokens_per_s
    assert throughput(_deployment(), replace(load, shared_prefix=shared), 32).tokens_per_s >= alone


def test_replicas_multiply_throughput() -> None:
    """Data parallelism is in proportion: each replica has its own cache and scheduler."""
    load = Load()
    one, four = (throughput(_deployment(dp=dp), load, 32).tokens_per_s for dp in (1, 4))
    assert four == pytest.approx(4 * one)


def test_a_pipeline_divides_weights_but_not_a_token() -> None:
    """Two stages halve a rank's weights; a token still passes both."""
    one, two = _deployment(), _deployment(pp=2)
    assert two.rank_weight_bytes == one.rank_weight_bytes / 2
    assert decode_step(two, 2, 2000).weights_s == decode_step(one, 2, 2000).weights_s


def test_models_that_do_not_fit_are_told_why() -> None:
    """A point whose weights exceed the GPU is refused with both sizes."""
    found = point(_deployment("llama-3.1-70b"), Load(), _settings())
    assert "weights need" in found.refused
    assert found.tokens_per_s == 0


def test_query_heads_must_divide() -> None:
    """Tensor parallelism that does not split the query heads is refused with sizes that do."""
    with pytest.raises(SettingsError) as caught:
        _deployment("qwen2.5-7b", tp=8).check_heads()
    assert "1, 2, 4, 7, 14, 28" in caught.value.remedy
    eight = point(_deployment("qwen2.5-7b", tp=8), Load(), _settings())
    assert "28 query heads" in eight.refused


def test_the_curve_shows_each_size_or_its_reason() -> None:
    """Each doubling is there; larger sizes of a fitting model are never refused for memory."""
    points = curve(_deployment("llama-3.1-70b"), Load(), _settings(), most=8)
    assert [p.gpus for p in points] == [1, 2, 4, 8]
    assert [bool(p.refused) for p in points] == [True, False, False, False]


def _points(*tokens_per_s: float) -> list[Point]:
    return [
        Point(
            gpus=1 << i,
            tokens_per_s=t,
            decode_s=0.01,
            batch=1,
            alpha_comm=0,
            refused="" if t else "no",
        )
        for i, t in enumerate(tokens_per_s)
    ]


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ((100, 190, 200, 210), 2),
        ((100, 200, 400, 800), 8),
        ((0, 100, 110), 2),
        ((100, 100 * KNEE_GAIN, 100), 2),
        ((0, 0), None),
    ],
)
def test_the_knee_is_the_last_doubling_that_pays(
    speeds: tuple[float, ...], expected: int | None
) -> None:
    """The knee is where the next doubling gains less than half again."""
    assert knee(_points(*speeds)) == expected


def test_unknown_parameter_counts_are_refused() -> None:
    """A roofline without a parameter count is an error that names the flag, not a guess."""
    nameless = replace(find_model("llama-3.1-8b"), params=None)
    with pytest.raises(SettingsError) as caught:
        decode_step(replace(_deployment(), model=nameless), 1, 100)
    assert "--params-b" in caught.value.remedy
