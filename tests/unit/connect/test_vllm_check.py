"""The sampled check in PagodaTier, on fakes of vLLM's interface: misses that are none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vllm_fakes as fakes

from pagoda.core.errors import SettingsError
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.quarantine import Entry

_CHUNK, _CHUNKS = 8192, 8
_PATIENCE_S = 30.0
_NAMES = [bytes([number]) * 36 for number in range(3)]
_PLACES = np.arange(3, dtype=np.int32)

Build = Callable[..., Any]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Builds a tier that checks a share of requests, over one drive; `rows` is its memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    tiers: list[Any] = []
    with fakes.fake_vllm() as cls:

        def begin(rate: float | None, cache_dtype: str = "auto", groups: int = 1) -> Any:
            vllm_config = fakes.engine_of(str(model))  # found by the tier, as in a connector
            vllm_config.cache_config.cache_dtype = cache_dtype
            spec = fakes.spec_of(str(model))
            spec.config.groups *= groups
            memory = np.frombuffer(aligned_buffer(_CHUNK * _CHUNKS), np.uint8)
            rows = memory.reshape(_CHUNKS, _CHUNK)
            drive = {"path": str(tmp_path / "kv"), "capacity": "8MiB", "free_floor": "1MiB"}
            check = {} if rate is None else {"check": {"rate": rate}}
            tier = cls(
                offloading_spec=spec,
                primary_kv_view=memoryview(rows),
                tier_type="PagodaTier",
                settings={"drive": drive, "store": {"restore_deadline": "1m"}, **check},
            )
            tier.rows = rows
            tiers.append(tier)
            return tier

        yield begin
        for tier in tiers:
            tier.shutdown()


def kv_of(seed: int, noise: float = 0.0) -> np.ndarray[Any, Any]:
    """Three chunks of bf16 numbers; `noise` is how far, relative, they are from `seed`'s own."""
    numbers = np.random.default_rng(seed).normal(size=(3, _CHUNK // 2)).astype("<f4")
    numbers *= 1 + noise
    return (numbers.view("<u4") >> 16).astype("<u2").view(np.uint8).reshape(3, _CHUNK)


def finished(tier: Any) -> Any:
    """The one job that ends."""
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        found = list(tier.get_finished_jobs())
        if found:
            [job] = found
            return job
        time.sleep(0.005)
    raise AssertionError("no job ends")


def store(tier: Any, contents: np.ndarray[Any, Any], number: int = 1) -> Any:
    """vLLM offers what it has computed."""
    tier.rows[:3] = contents
    tier.submit_store(fakes.TransferJob(number, _NAMES, _PLACES))
    return finished(tier)


def found(tier: Any) -> list[bool]:
    """Which chunks a request is told of; vLLM asks no further than to the first that is not."""
    answers = []
    for name in _NAMES:
        answers.append(tier.lookup(name, fakes.ReqContext("r")) is fakes.LookupResult.HIT)
        if not answers[-1]:
            break
    return answers + [False] * (len(_NAMES) - len(answers))


def counted(tier: Any, name: str, *labels: str) -> float:
    return tier.get_stats().counters.get((name, labels), 0)


@pytest.mark.parametrize(("noise", "verdict"), [(0.0, "equal"), (0.02, "close")])
def test_a_request_that_was_chosen_computes_what_is_there(
    build: Build, noise: float, verdict: str
) -> None:
    """It is told of nothing, and what vLLM then offers is held against what is stored. What an
    engine differs by from itself accuses nobody: everything is served as before."""
    tier = build(1.0)
    first = kv_of(1)
    assert store(tier, first).success
    assert found(tier) == [False] * 3
    tier.on_request_finished(fakes.ReqContext("r"))  # what it computed may come later
    assert store(tier, kv_of(1, noise), number=2).success
    assert counted(tier, "pagoda_checked_chunks", "drive", verdict) == 3
    tier.shutdown()
    plain = build(0.0)
    assert found(plain) == [True] * 3
    plain.submit_load(fakes.TransferJob(3, _NAMES, np.array([6, 3, 5], np.int32)))
    assert finished(plain).success
    assert np.array_equal(plain.rows[[6, 3, 5]], first)


def test_chunks_of_other_numbers_are_told_and_served_to_nobody(build: Build) -> None:
    """Not by this engine, and not by the next one over the same drive; nor are new ones stored."""
    tier = build(1.0)
    store(tier, kv_of(1))
    assert found(tier) == [False] * 3
    assert store(tier, kv_of(2), number=2).transfer_bytes == 0
    stats = tier.get_stats().counters
    assert stats["pagoda_checked_chunks", ("drive", "wrong")] == 3
    assert stats["pagoda_quarantines", ()] == 1
    tier.shutdown()
    plain = build(0.0)
    assert found(plain) == [False] * 3
    assert store(plain, kv_of(2), number=3).transfer_bytes == 0
    assert counted(plain, "pagoda_skipped_chunks", "drive", "quarantined") == 3


def test_a_load_under_way_when_it_is_found_brings_nothing(build: Build) -> None:
    """vLLM computes those chunks."""
    tier = build(0.0)
    store(tier, kv_of(1))
    tier.submit_load(fakes.TransferJob(2, _NAMES, np.array([6, 3, 5], np.int32)))
    [namespace] = tier._store.levels()[0].sealed.seals.namespaces
    tier._store.quarantine.add(namespace, Entry(7, "because"))
    job = finished(tier)
    assert (job.success, job.transfer_bytes) == (False, 0)


def test_nothing_is_checked_unless_it_is_set(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's bits depend on what else it computes: checking it is the operator's to decide."""
    tier = build(None)
    store(tier, kv_of(1))
    assert found(tier) == [True] * 3
    tier.shutdown()
    monkeypatch.setenv("PAGODA_CHECK_RATE", "1")
    assert found(build(None)) == [False] * 3


@pytest.mark.parametrize("odd", [{"cache_dtype": "fp8"}, {"groups": 2}])
def test_what_cannot_be_compared_is_refused_at_the_start(build: Build, odd: dict[str, Any]) -> None:
    """A check that could only guess is none; without it the engine starts."""
    with pytest.raises(SettingsError, match="check"):
        build(0.5, **odd)
    build(0.0, **odd)
