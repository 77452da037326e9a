"""PagodaTier on fakes of vLLM's interface: what it answers, reports, holds and tells."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vllm_fakes as fakes

from pagoda.core.errors import DirectoryLocked, PagodaError, SettingsError
from pagoda.machine.buffers import aligned_buffer
from pagoda.tiers.drive import DriveTier

_CHUNK, _CHUNKS = 8192, 8
_PATIENCE_S = 30.0
_NAMES = [bytes([number]) * 36 for number in range(3)]


class Primary:
    """The host memory's manager: notes what is taken and given back."""

    def __init__(self) -> None:
        self.freed: list[int] = []
        self.taken: dict[bytes, int] = {}

    def prepare_store(self, keys: Any, req_context: Any) -> Any:
        self.taken[keys[0]] = self.freed.pop()
        spec = fakes.SimpleNamespace(block_ids=[self.taken[keys[0]]])
        return fakes.SimpleNamespace(evicted_keys=[], store_spec=spec)

    def complete_store(self, keys: Any, req_context: Any, success: bool) -> None:
        assert not success
        self.freed += [self.taken.pop(key) for key in keys]


Build = Callable[..., Any]


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model's directory, with weights of a few bytes."""
    (tmp_path / "model").mkdir()
    header = b"{}"
    size = len(header).to_bytes(8, "little")
    (tmp_path / "model" / "model.safetensors").write_bytes(size + header)
    return str(tmp_path / "model")


@pytest.fixture
def build(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Builds a tier as a connector would; `tier.rows` is its host memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tiers: list[Any] = []
    with fakes.fake_vllm() as cls:

        def begin(
            *,
            served: str = model,
            primary: Any = None,
            events: bool = False,
            replica: int = 0,
            **own: Any,
        ) -> Any:
            vllm_config = fakes.engine_of(served)  # found by the tier, as in a connector
            memory = np.frombuffer(aligned_buffer(_CHUNK * _CHUNKS), np.uint8)
            rows = memory.reshape(_CHUNKS, _CHUNK)
            drive = {"path": str(tmp_path / "kv"), "capacity": "8MiB", "free_floor": "1MiB"}
            settings = own.pop("settings", {})
            if isinstance(settings, dict) and 5 not in settings:
                patient = {"restore_deadline": "1m"}  # a busy machine makes no chunk late
                settings = {"drive": drive, "store": patient, **settings}
            tier = cls(
                offloading_spec=fakes.spec_of(
                    served, primary=primary, events=events, replica=replica
                ),
                primary_kv_view=memoryview(rows),
                tier_type="PagodaTier",
                settings=settings,
                **own,
            )
            assert vllm_config is not None
            tier.rows = rows
            tiers.append(tier)
            return tier

        yield begin
        for tier in tiers:
            tier.shutdown()


def _finished(tier: Any) -> Any:
    """The one job that ends; each result is handled before the next is asked for, as vLLM does."""
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        found = list(tier.get_finished_jobs())
        if found:
            [job] = found
            return job
        time.sleep(0.005)
    raise AssertionError("no job ends")


def _store(tier: Any) -> np.ndarray[Any, Any]:
    tier.rows[:3] = np.random.default_rng(5).integers(0, 256, (3, _CHUNK), np.uint8)
    tier.submit_store(fakes.TransferJob(1, _NAMES, np.arange(3, dtype=np.int32)))
    assert _finished(tier).success
    return np.array(tier.rows[:3])


def test_stored_chunks_are_hits_and_are_loaded_where_vllm_wants_them(build: Build) -> None:
    """Look-ups, jobs, bytes and counters of a store and a load."""
    tier = build()
    context = fakes.ReqContext("r")
    assert tier.lookup(_NAMES[0], context) is fakes.LookupResult.MISS
    contents = _store(tier)
    assert tier.lookup(_NAMES[0], context) is fakes.LookupResult.HIT
    tier.touch(_NAMES, context)
    tier.on_schedule_end(None)
    tier.submit_load(fakes.TransferJob(2, _NAMES, np.array([6, 3, 5], np.int32)))
    job = _finished(tier)
    assert (job.job_id, job.success, job.transfer_bytes) == (2, True, 3 * _CHUNK)
    assert np.array_equal(tier.rows[[6, 3, 5]], contents)
    stats = tier.get_stats()
    assert stats.counters["pagoda_restored_bytes", ("drive",)] == 3 * _CHUNK
    assert stats.counters["pagoda_stored_chunks", ("drive",)] == 3
    assert ("pagoda_bounced_copies", ()) not in stats.counters
    assert stats.gauges == {"pagoda_held_chunks": 0}
    assert not tier.get_stats().counters  # each is reported once


def test_after_the_shutdown_nothing_holds_vllms_memory(build: Build) -> None:
    """vLLM unmaps it then, which fails while somebody has a view of it."""
    tier = build()
    _store(tier)
    tier.submit_load(fakes.TransferJob(2, _NAMES, np.array([4, 5, 6], np.int32)))
    _finished(tier)
    memory = tier._rows
    tier.shutdown()
    tier.rows = None
    until_s = time.monotonic() + _PATIENCE_S  # I/O threads end in their own time
    while sys.getrefcount(memory) > 2 and time.monotonic() < until_s:
        gc.collect()
        time.sleep(0.01)
    assert sys.getrefcount(memory) == 2  # this frame's, and that of the call


def test_every_counter_that_is_reported_is_defined(build: Build) -> None:
    """vLLM makes a metric for each definition, with its labels, and knows no others."""
    tier = build()
    _store(tier)
    definitions = tier.build_metric_definitions({})
    stats = tier.get_stats()
    for name, labels in stats.counters:
        assert len(definitions[name].labelnames) == len(labels)
    assert set(stats.gauges) <= set(definitions)


def test_a_part_of_a_load_that_fails_is_told_by_name(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One damaged chunk: the others are kept, it is a miss at the next look-up."""
    tier = build()
    _store(tier)
    read = DriveTier.read

    def damage(self: DriveTier, slots: Any, into: Any) -> list[int]:
        counts = read(self, slots, into)
        for buffer in into:
            if np.shares_memory(np.frombuffer(buffer, np.uint8), tier.rows[5]):
                buffer[7] ^= 1
        return counts

    monkeypatch.setattr(DriveTier, "read", damage)
    tier.submit_load(fakes.TransferJob(2, _NAMES, np.array([4, 5, 6], np.int32)))
    job = _finished(tier)
    assert not job.success
    assert set(job.successful_keys) == {_NAMES[0], _NAMES[2]}
    assert tier.lookup(_NAMES[1], fakes.ReqContext("r")) is fakes.LookupResult.MISS


def test_chunks_of_a_stuck_load_are_taken_before_vllm_can_give_them_away(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM frees them when the failure is told; when its loop goes on they are held, and they are
    given back once the thread is out of the drive."""
    import threading

    primary = Primary()
    tier = build(primary=primary, settings={"store": {"restore_deadline": "1s"}})
    _store(tier)
    free, read = threading.Event(), DriveTier.read

    def hang(self: DriveTier, slots: Any, into: Any) -> list[int]:
        free.wait(_PATIENCE_S)
        return read(self, slots, into)

    monkeypatch.setattr(DriveTier, "read", hang)
    tier.submit_load(fakes.TransferJob(2, _NAMES, np.array([4, 5, 6], np.int32)))
    until_s, told = time.monotonic() + _PATIENCE_S, False
    while not told and time.monotonic() < until_s:
        for job in tier.get_finished_jobs():
            assert not job.success
            assert not primary.taken
            primary.freed += [4, 5, 6]  # what vLLM does with a failed load
            told = True
    assert told
    assert sorted(primary.taken.values()) == [4, 5, 6]
    assert tier.get_stats().gauges == {"pagoda_held_chunks": 3}
    free.set()
    tier.drain_jobs()
    assert not primary.taken
    assert sorted(primary.freed) == [4, 5, 6]


def test_events_say_what_is_stored_and_what_is_gone(build: Build) -> None:
    """Where vLLM publishes events, and the tier is asked to; else there are none."""
    tier = build(events=True, enable_kv_events=True)
    _store(tier)
    [stored] = tier.take_events()
    assert (stored.keys, stored.removed, stored.ownership) == (_NAMES, False, "PagodaTier")
    assert list(tier.take_events()) == []
    with tier._offload._lock:
        tier._store.clear()
    until_s, gone = time.monotonic() + _PATIENCE_S, []
    while len(gone) < len(_NAMES) and time.monotonic() < until_s:
        for event in tier.take_events():
            assert event.removed
            gone += event.keys
    assert sorted(gone) == sorted(_NAMES)


def test_what_is_there_is_announced_after_a_restart_without_a_request(build: Build) -> None:
    """The engine has to step until routers were told of what an earlier process stored."""
    first = build(events=True, enable_kv_events=True)
    assert not first.has_pending_work()
    _store(first)
    first.shutdown()
    tier = build(events=True, enable_kv_events=True)
    assert tier.has_pending_work()
    [stored] = tier.take_events()
    assert (sorted(stored.keys), stored.removed) == (sorted(_NAMES), False)
    assert not tier.has_pending_work()
    tier.shutdown()
    silent = build(events=False, enable_kv_events=True)
    assert not silent.has_pending_work()


def test_pagodas_own_metrics_can_be_scraped_where_a_port_is_named(build: Build) -> None:
    """Counts, times and gauges of each drive at a loopback port, gone with the tier; a port that
    is taken is an error that names the key."""
    import socket
    from urllib.request import urlopen

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        with pytest.raises(SettingsError, match=str(port)) as caught:
            build(metrics_port=port)
        assert caught.value.key == "metrics_port"
    tier = build(metrics_port=port)
    _store(tier)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_PATIENCE_S) as answer:
        text = answer.read().decode()
    assert 'pagoda_blocks_stored_total{tier="drive"} 3.0' in text
    assert "pagoda_engine_drive_blocks_stored 3.0" in text
    tier.shutdown()
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_PATIENCE_S)


def test_without_events_nothing_is_gathered(build: Build) -> None:
    """vLLM does not take events that nobody publishes."""
    tier = build(events=False, enable_kv_events=True)
    _store(tier)
    assert list(tier.take_events()) == []
    assert tier._events is None


def test_what_cannot_be_is_refused_with_a_reason(build: Build, tmp_path: Path) -> None:
    """A name on a hub, a directory that another engine has, a tier outside a connector."""
    with pytest.raises(SettingsError, match="is no directory"):
        build(served="an-org/a-model")
    build()
    with pytest.raises(DirectoryLocked):
        build()


def test_each_data_parallel_replica_has_a_directory_of_its_own(
    build: Build, tmp_path: Path
) -> None:
    """One configuration starts them all: the second lies below the first, and neither reads what
    the other has; another engine is told who has either."""
    first, second = build(), build(replica=1)
    _store(second)
    assert (tmp_path / "kv" / "dp-1" / "lock").exists()
    assert first.lookup(_NAMES[0], fakes.ReqContext("r")) is fakes.LookupResult.MISS
    for replica in (0, 1):
        with pytest.raises(DirectoryLocked, match="vLLM, process"):
            build(replica=replica)


def test_a_tier_outside_a_connector_is_refused() -> None:
    """Without vLLM's configuration nobody knows what a chunk is made of."""
    from pagoda.connect.vllm.engine import engine_config

    with pytest.raises(PagodaError, match="not built by an OffloadingConnector"):
        engine_config()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"setings": {}}, "did you mean settings"),
        ({"settings": [1]}, "settings is no tree"),
        ({"settings": "drive"}, "settings is no tree"),
        ({"settings": {5: {}}}, "settings is no tree"),
        ({"config": 5}, "config is no path"),
        ({"config": "a\0b"}, "config is no path"),
        ({"salt": 5}, "salt is no text"),
        ({"salt": True}, "salt is no text"),
        ({"salt": "\ud800"}, "half a character"),
        ({"enable_kv_events": "no"}, "neither true nor false"),
        *(({"metrics_port": port}, "no port") for port in ("9400", 1.5, True, -1, 70000, [1])),
    ],
)
def test_entries_are_checked_before_anything_is_opened(
    build: Build, entry: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """What cannot be is told with its name and a remedy; null is as if it were left out."""
    with pytest.raises(SettingsError) as refused:
        build(**({"settings": {}} | entry))
    assert message in f"{refused.value.message} {refused.value.remedy}"
    assert refused.value.key == next(iter(entry))
    assert not (tmp_path / "kv").exists()
    build(salt=None, config=None, metrics_port=None, enable_kv_events=None)
