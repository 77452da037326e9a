"""Whole plans: topology, engine, scheduler target, flags and figures."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.advise.plan import Plan, Request, make_plan
from pagoda.advise.plan.catalogue import find_gpu, find_model, models
from pagoda.advise.plan.economics import Drive
from pagoda.advise.plan.facts import Load
from pagoda.advise.plan.output import plan_json
from pagoda.advise.plan.request import Tiers
from pagoda.advise.plan.schedule import overflow_chance
from pagoda.advise.plan.throughput import Stalls
from pagoda.core.errors import SettingsError
from pagoda.core.sizing import Parallel
from pagoda.settings.tree import Settings

LOAD = Load(input_tokens=1000, output_tokens=200)


def _plan(model: str = "llama-3.1-70b", gpu: str = "h100", gpus: int = 8, **changes) -> Plan:
    facts = {"max_model_len": 8192, "load": LOAD}
    return make_plan(
        Request(model=find_model(model), gpu=find_gpu(gpu), gpus=gpus, **(facts | changes))
    )


def test_the_topology_uses_the_gpus_it_was_given() -> None:
    """Ranks, stages and replicas never exceed the GPUs, and the model fits."""
    for gpus in (2, 4, 8, 16):
        plan = _plan(gpus=gpus)
        assert plan.deployment.parallel.gpus <= gpus
        assert plan.fits


def test_the_topology_is_the_best_of_those_tried() -> None:
    """No size of the curve times its replicas makes more tokens than the chosen one."""
    plan = _plan()
    assert plan.speed is not None
    for found in plan.scaling:
        if not found.refused and found.gpus <= 8:
            assert found.tokens_per_s * (8 // found.gpus) <= plan.speed.tokens_per_s * (1 + 1e-9)


def test_a_time_limit_moves_the_topology() -> None:
    """Asked for quick tokens, the planner takes more ranks a replica and smaller batches."""
    free = _plan("llama-3.1-8b", gpu="a100-80")
    limit = 0.008
    quick = _plan("llama-3.1-8b", gpu="a100-80", decode_limit_s=limit)
    assert quick.deployment.parallel.tp > free.deployment.parallel.tp
    assert quick.speed.decode_s <= limit
    assert quick.speed.batch * quick.deployment.parallel.dp < free.speed.batch * 8


def test_an_impossible_time_limit_is_said() -> None:
    """No size can beat the time to read the weights: each is refused with that reason."""
    plan = _plan(decode_limit_s=1e-4)
    assert plan.speed is None
    assert any("even one request alone" in reason for reason in plan.topology.reasons)


def test_a_pipeline_is_used_only_where_a_host_is_too_small() -> None:
    """A model larger than one host's GPUs gets a pipeline over hosts; a smaller one does not."""
    large = _plan("deepseek-v3", gpu="a100-80", gpus=16)
    assert large.deployment.parallel.pp == 2
    assert large.fits
    assert _plan(gpus=16).deployment.parallel.pp == 1


def test_what_does_not_fit_is_said_with_sizes() -> None:
    """Without room there is no speed, the reason names bytes, and the plan is still printable."""
    plan = _plan(gpu="rtx-4090", gpus=1)
    assert not plan.fits
    assert plan.speed is None
    assert any("weights need" in reason for reason in plan.topology.reasons)
    assert json.loads(json.dumps(plan_json(plan), allow_nan=False))["fits"] is False


def test_asked_sizes_are_kept_or_refused() -> None:
    """Sizes asked for are used as they are; impossible ones are errors."""
    assert _plan(parallel=Parallel(tp=4, dp=2)).deployment.parallel == Parallel(tp=4, dp=2)
    with pytest.raises(SettingsError):
        _plan(parallel=Parallel(tp=3))


def test_a_load_longer_than_the_limit_is_refused() -> None:
    """A mean request above max_model_len is a contradiction, not a plan."""
    with pytest.raises(SettingsError) as caught:
        _plan(load=Load(input_tokens=9000, output_tokens=10))
    assert caught.value.key == "max_model_len"


@pytest.mark.parametrize("field", [{"utilization": 0.0}, {"occupancy": 1.5}, {"gpus": 0}])
def test_impossible_settings_are_refused(field: dict[str, float]) -> None:
    """Shares outside (0, 1] and zero GPUs are errors."""
    with pytest.raises(SettingsError):
        _plan(**field)


def test_seventy_percent_is_the_default_target() -> None:
    """The scheduler's target is 70 % of the pool, and its row is what the plan runs at."""
    plan = _plan()
    row = next(r for r in plan.schedule if r.occupancy == 0.7)
    assert plan.request.occupancy == 0.7
    assert row.requests == pytest.approx(plan.speed.batch)


def test_fuller_pools_are_faster_and_riskier() -> None:
    """Over the targets, throughput, time a token and overflow only rise."""
    rows = _plan("llama-3.1-8b", gpu="l4", gpus=1, load=Load(input_tokens=3000)).schedule
    assert len(rows) >= 3
    for low, high in itertools.pairwise(rows):
        assert high.tokens_per_s >= low.tokens_per_s
        assert high.decode_s >= low.decode_s
        assert high.overflow >= low.overflow


@settings(deadline=None)
@given(pool=st.floats(1, 1000), share=st.floats(0.05, 1.0))
def test_overflow_is_a_probability(pool: float, share: float) -> None:
    """A pool exactly full on average overflows half of the time, a roomier one less often."""
    chance = overflow_chance(pool, pool * share)
    assert 0 <= chance <= 0.5 + 1e-12
    assert overflow_chance(pool, pool) == pytest.approx(0.5)


def test_shared_prefixes_speak_for_sglang_and_states_for_vllm() -> None:
    """The engine follows the load's shape, and every reason is a sentence with its engine."""
    assert _plan(load=replace(LOAD, shared_prefix=0.8)).engine.engine == "sglang"
    hybrid = _plan("qwen3-next-80b-a3b").engine
    assert hybrid.engine == "vllm"
    assert all(r.sentence and r.engine in {"vllm", "sglang"} for r in hybrid.reasons)
    assert _plan().engine.reasons, "a tie is explained too"


def test_measured_misses_cost_throughput() -> None:
    """Stalls given by the reader enter as beta and lower the throughput."""
    free, stalled = _plan(), _plan(stalls=Stalls(miss_rate=0.1, miss_s=0.5))
    assert free.speed.beta_kv_miss == 0
    assert stalled.speed.beta_kv_miss > 0
    assert stalled.speed.tokens_per_s < free.speed.tokens_per_s


def test_commands_carry_the_plans_sizes() -> None:
    """Each engine's command line has its own spelling of the same sizes."""
    plan = _plan(parallel=Parallel(tp=4, dp=2), kv_dtype="fp8", tiers=Tiers(host_bytes=2e11))
    vllm, sglang = (shlex.split(plan.commands[n]) for n in ("vllm", "sglang"))
    assert vllm[vllm.index("--tensor-parallel-size") + 1] == "4"
    assert vllm[vllm.index("--kv-cache-dtype") + 1] == "fp8"
    connector = json.loads(vllm[vllm.index("--kv-transfer-config") + 1])
    assert connector["kv_connector_extra_config"]["cpu_bytes_to_use"] == 10**11
    assert sglang[sglang.index("--tp-size") + 1] == "4"
    assert sglang[sglang.index("--kv-cache-dtype") + 1] == "fp8_e4m3"
    assert sglang[sglang.index("--hicache-size") + 1] == "25", "a quarter of a replica's, in GB"
    assert "secondary_tiers" not in connector["kv_connector_extra_config"], "there is no drive"


def test_drives_that_are_not_written_have_no_end() -> None:
    """A life without end is null in JSON, which has no infinity."""
    plan = _plan(tiers=Tiers(drives=2, write_share=0.0))
    assert plan.drives.life_years == math.inf
    assert json.loads(json.dumps(plan_json(plan), allow_nan=False))["drives"]["life_years"] is None


def test_drives_go_to_pagoda_below_either_engine() -> None:
    """With settings that Pagoda knows, of as many drives as there are."""
    plan = _plan(parallel=Parallel(tp=4, dp=2), tiers=Tiers(host_bytes=2e11, drives=2))
    vllm, sglang = (shlex.split(plan.commands[n]) for n in ("vllm", "sglang"))
    connector = json.loads(vllm[vllm.index("--kv-transfer-config") + 1])
    (tier,) = connector["kv_connector_extra_config"]["secondary_tiers"]
    storage = json.loads(sglang[sglang.index("--hicache-storage-backend-extra-config") + 1])
    assert tier["settings"] == storage["settings"]
    drive = Settings.model_validate(tier["settings"]).drive
    assert drive.path == "/path/on/drive0,/path/on/drive1"
    assert drive.capacity == pytest.approx(Drive().capacity_bytes * 0.9 / 2, rel=0.01)


def test_each_figure_has_a_formula() -> None:
    """Every number of a plan says how it came about, and names are unique."""
    plan = _plan(tiers=Tiers(host_bytes=2e11, drives=2, network_gbit=100))
    names = [figure.name for figure in plan.figures]
    assert len(names) == len(set(names))
    assert all(figure.formula for figure in plan.figures)


def test_throughputs_terms_are_among_the_figures() -> None:
    """gpus * compute / (1 + alpha + beta) can be redone from the printed figures."""
    plan = _plan()
    value = {figure.name: figure.value for figure in plan.figures}
    redone = plan.speed.gpus * value["compute_per_gpu"]
    redone /= 1 + value["alpha_comm"] + value["beta_kv_miss"]
    assert value["throughput"] == pytest.approx(redone)


def test_assumptions_are_always_listed() -> None:
    """A plan says where facts come from, and that efficiencies are assumed."""
    text = "\n".join(_plan().assumptions)
    for word in ("model facts", "GPU facts", "assumed", "reserved", "beta_kv_miss is 0"):
        assert word in text


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(models())),
    gpus=st.sampled_from([1, 2, 3, 8, 16]),
    tiers=st.builds(Tiers, host_bytes=st.sampled_from([0.0, 1e11]), drives=st.integers(0, 4)),
)
def test_every_catalogue_model_plans(name: str, gpus: int, tiers: Tiers) -> None:
    """Whatever the model and GPUs, the plan is finite JSON with the documented keys."""
    load = Load(input_tokens=500, output_tokens=100)
    plan = _plan(name, "h200", gpus, load=load, tiers=tiers, max_model_len=2048)
    found = json.loads(json.dumps(plan_json(plan), allow_nan=False))
    assert {"bytes_per_token_per_rank", "tokens", "blocks", "concurrency", "assumptions"} <= set(
        found
    )
    assert math.isfinite(found["concurrency"])
