"""Tiers, misses and drives: break-even lengths, budgets, wear."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.advise.plan.catalogue import find_gpu, find_model, models
from pagoda.advise.plan.economics import (
    Drive,
    DriveUse,
    Tier,
    break_even_tokens,
    drive_needs,
    miss_rate_budget,
    recompute_s,
    restore_s,
    stored_bytes_per_token,
    stored_context_bytes,
    worth,
    write_bytes_a_day,
)
from pagoda.advise.plan.facts import Load
from pagoda.advise.plan.request import Tiers, tiers_below
from pagoda.advise.plan.roofline import Deployment
from pagoda.advise.plan.throughput import combined
from pagoda.core.sizing import Parallel, kv_dtype

RATES = st.floats(1e8, 1e11)


def _deployment(model: str = "llama-3.1-8b", **sizes: int) -> Deployment:
    return Deployment(
        model=find_model(model),
        gpu=find_gpu("h100"),
        parallel=Parallel(**sizes),
        dtype=kv_dtype("bf16"),
    )


def _tier(read: float, latency_s: float = 1e-4) -> Tier:
    return Tier(
        name="drive", capacity_bytes=1e12, read=read, rank_link=5e10, latency_s=latency_s, link=""
    )


@settings(deadline=None)
@given(read=RATES, name=st.sampled_from(["llama-3.1-8b", "llama-3.1-70b", "deepseek-v2-lite"]))
def test_break_even_separates_losing_from_winning(read: float, name: str) -> None:
    """Just below the break-even length computing wins, from there on restoring does."""
    deployment, tier, longest = _deployment(name), _tier(read), 32_768
    found = break_even_tokens(deployment, tier, longest)
    if found is None:
        assert restore_s(deployment, tier, longest) >= recompute_s(deployment, longest)
        return
    assert restore_s(deployment, tier, found) < recompute_s(deployment, found)
    if found > 1:
        assert restore_s(deployment, tier, found - 1) >= recompute_s(deployment, found - 1)


@settings(deadline=None)
@given(read=RATES, faster=st.floats(1, 10))
def test_a_faster_tier_breaks_even_no_later(read: float, faster: float) -> None:
    """More bandwidth never moves the break-even length up."""
    slow = break_even_tokens(_deployment(), _tier(read), 32_768) or math.inf
    fast = break_even_tokens(_deployment(), _tier(read * faster), 32_768) or math.inf
    assert fast <= slow


def test_tiers_hold_each_head_once() -> None:
    """Below the device neither replicated heads nor an MLA latent is kept once a rank."""
    for name, tp in (("qwen2.5-7b", 28), ("deepseek-v3", 8), ("llama-3.1-70b", 8)):
        assert stored_bytes_per_token(_deployment(name, tp=tp)) == stored_bytes_per_token(
            _deployment(name)
        )


def test_a_latent_passes_every_ranks_link_whole() -> None:
    """With MLA eight ranks restore no faster than one; with grouped heads they share the work."""
    tier = replace(_tier(math.inf), rank_link=2e10, latency_s=0.0)
    one, eight = (restore_s(_deployment("deepseek-v3", tp=tp), tier, 4096) for tp in (1, 8))
    assert eight == pytest.approx(one)
    assert one == pytest.approx(4096 * 70_272 / 2e10)
    one, eight = (restore_s(_deployment("llama-3.1-70b", tp=tp), tier, 4096) for tp in (1, 8))
    assert eight == pytest.approx(one / 8)
    assert one == pytest.approx(4096 * 327_680 / 2e10)


def test_windows_and_states_are_moved_once() -> None:
    """Restoring a long context moves a window's last tokens and a state once, not every token."""
    gemma, hybrid = _deployment("gemma-3-27b"), _deployment("qwen3-next-80b-a3b")
    assert stored_context_bytes(gemma, 100_000) < 100_000 * stored_bytes_per_token(gemma) / 3
    state = hybrid.model.kv.state_bytes(Parallel())
    assert stored_context_bytes(hybrid, 1000) == 1000 * stored_bytes_per_token(hybrid) + state


@settings(deadline=None)
@given(loss=st.floats(0.001, 0.5), compute=st.floats(0.001, 10), miss=st.floats(0.001, 100))
def test_the_miss_budget_costs_exactly_the_loss(loss: float, compute: float, miss: float) -> None:
    """At the budget, throughput is (1 - loss) of what it is without misses."""
    rate = miss_rate_budget(loss, compute, miss)
    kept = combined(1, 1.0, 0.0, rate * miss / compute)
    assert kept >= 1 - loss - 1e-9
    if rate < 1:
        assert kept == pytest.approx(1 - loss)


def test_ttft_adds_the_restore_to_the_rest() -> None:
    """Time to first token from a tier is the restore plus computing the new part."""
    load = Load(input_tokens=4000, shared_prefix=0.75)
    found = worth(_deployment(), _tier(5e9), load, 32_768)
    assert found.ttft_s > found.restore_s
    assert 0 <= found.overlap_needed < 1
    assert found.tokens == int(1e12 // 131_072)


@settings(deadline=None)
@given(written=st.floats(1e9, 1e15), owned=st.integers(1, 64))
def test_drive_life_is_inverse_to_writes(written: float, owned: int) -> None:
    """Twice the writes halve the life; the drives by endurance last their five years."""
    drive = Drive()

    def needs(volume: float, count: int) -> tuple[float, int]:
        use = DriveUse(held_bytes=0, read_bytes_per_s=0, write_bytes_a_day=volume)
        found = drive_needs(drive, use, count)
        return found.life_years, found.by_endurance

    life, enough = needs(written, owned)
    assert needs(2 * written, owned)[0] == pytest.approx(life / 2)
    assert needs(written, enough)[0] >= 5.0 * (1 - 1e-9)


def test_no_writes_never_wear_out() -> None:
    """A store that is not written lasts for ever and needs no drives for endurance."""
    found = drive_needs(Drive(), DriveUse(held_bytes=0, read_bytes_per_s=0, write_bytes_a_day=0), 2)
    assert found.life_years == math.inf
    assert found.drives == 0


def test_written_volume_is_new_tokens_times_bytes() -> None:
    """A request a second of 1,000 new tokens of 128 KiB writes 11.3 TB a day."""
    load = Load(input_tokens=1400, output_tokens=300, shared_prefix=0.5)
    assert write_bytes_a_day(_deployment(), load, 1.0) == pytest.approx(1000 * 131_072 * 86_400)


def test_only_named_tiers_exist() -> None:
    """A tier is planned when it has a size: nothing is assumed to be there."""
    gpu = find_gpu("h100")
    assert tiers_below(gpu, Tiers(), 0.75) == []
    every = tiers_below(gpu, Tiers(host_bytes=1e11, drives=2, network_gbit=100), 0.75)
    assert [tier.name for tier in every] == ["host", "drive", "remote"]


def test_a_drive_is_no_faster_than_its_lanes() -> None:
    """A drive rated above its PCIe lanes is counted at the lanes' rate."""
    fast = Tiers(drives=1, drive=Drive(read=14e9), drive_pcie=(3, 4))
    (tier,) = tiers_below(find_gpu("h100"), fast, 1.0)
    assert tier.read == pytest.approx(3.94e9, rel=0.01)


@pytest.mark.parametrize("name", sorted(models()))
def test_every_model_has_finite_tier_figures(name: str) -> None:
    """Every catalogue entry gives finite restore and recompute times."""
    found = worth(_deployment(name), _tier(5e9), Load(input_tokens=1000), 2048)
    assert all(math.isfinite(v) for v in (found.restore_s, found.recompute_s, found.ttft_s))
