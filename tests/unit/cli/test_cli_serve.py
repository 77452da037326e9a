"""`pagoda serve`: settings reach the server and the engine, metrics are attached, it ends."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pagoda.cli.serve import serve_config
from pagoda.core.errors import ModelNotFound
from pagoda.core.events import Ended, Evicted
from pagoda.core.policy.port import Hint
from pagoda.lab.replay.files import read_trace
from pagoda.settings import Origin, Rank, Settings, mapping_layer, resolve
from pagoda.settings.keys import all_keys


def test_every_server_setting_reaches_the_server() -> None:
    """Each key of [server], changed, changes what the server is given."""
    changes: dict[str, object] = {
        "host": "::1",
        "port": 1,
        "api_key": "hush",
        "max_body": "1MiB",
        "max_connections": 3,
        "max_waiting": 5,
        "shutdown_grace": "7s",
    }
    elsewhere = {"api_key_file", "record"}  # read by the loader, and by the command itself
    assert set(changes) == set(Settings().server.__class__.model_fields) - elsewhere
    plain = serve_config(Settings())
    for field, value in changes.items():
        layer = mapping_layer({"server": {field: value}}, Origin(Rank.FILE, "x.toml"))
        assert serve_config(resolve([layer]).settings) != plain, field


def test_the_servers_defaults_are_the_settings_defaults() -> None:
    """The documented defaults are those that a server without settings has."""
    from pagoda.serve.config import ServeConfig

    mapped, own = serve_config(Settings()), ServeConfig()
    for name in ("host", "port", "api_key", "max_connections", "max_body_bytes", "max_waiting"):
        assert getattr(mapped, name) == getattr(own, name), name
    assert mapped.grace_s == own.grace_s


def test_no_model_is_told_with_the_remedy(pagoda: Any) -> None:
    """Without a model it is status 2, before anything heavy is imported."""
    result = pagoda("serve")
    assert result.status == 2
    assert "no model is named" in result.err
    assert "--model DIR" in result.err


def test_every_setting_that_has_a_flag_is_a_flag_of_the_server(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new section of settings reaches the command that serves with them."""
    monkeypatch.setenv("COLUMNS", "200")
    shown = pagoda("serve", "--help").out
    flags = [key.flag for key in all_keys() if key.flag]
    assert [flag for flag in flags if flag not in shown] == []


def test_a_busy_port_is_told_before_a_model_is_loaded(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading takes long; that the port is taken is known before, and --port is the remedy."""

    def open_engine(*given: object) -> None:
        raise AssertionError("the model was loaded")

    composed = SimpleNamespace(open_engine=open_engine)
    monkeypatch.setitem(sys.modules, "pagoda.serve.compose", composed)  # type: ignore[arg-type]
    monkeypatch.setattr("pagoda.watch.logs.configure", lambda *given, **named: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = pagoda("serve", "--model", "tiny", "--port", str(port))
    assert result.status == 2
    assert f"cannot listen on 127.0.0.1:{port}" in result.err
    assert "--port" in result.err


class Engine:
    """As much of an engine as the command touches."""

    def stats(self) -> dict[str, float]:
        """One statistic."""
        return {"running": 3.0}


def test_engine_server_and_metrics_are_joined(
    pagoda: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The engine gets settings and an observer; the server gets both and the registry that
    shows events and statistics; readiness is one line of JSON."""
    engine = Engine()
    seen: dict[str, Any] = {}

    def open_engine(settings: Settings, observer: Any) -> Engine:
        seen["settings"] = settings
        observer(Evicted(tier="drive", blocks=4))
        return engine

    def run_server(
        given: Engine, config: Any, *, address: socket.socket, registry: Any, on_ready: Any
    ) -> None:
        assert given is engine
        assert address.getsockname()[1] > 0
        evicted = registry.get_sample_value("pagoda_blocks_evicted_total", {"tier": "drive"})
        seen["metrics"] = (evicted, registry.get_sample_value("pagoda_engine_running"))
        on_ready("http://127.0.0.1:1234")

    monkeypatch.setitem(
        sys.modules,
        "pagoda.serve.compose",
        SimpleNamespace(open_engine=open_engine),  # type: ignore[arg-type]
    )
    monkeypatch.setattr("pagoda.serve.server.run_server", run_server)
    monkeypatch.setattr("pagoda.watch.logs.configure", lambda *given, **named: None)
    (tmp_path / "tiny").mkdir()
    with caplog.at_level("INFO", logger="pagoda.serve"):
        result = pagoda(
            "serve", "--model", "tiny", "--drive-capacity", "8GiB", "--port", "0", "--json"
        )
    assert result.status == 0, result.err
    assert f"loading tiny, drive tier: {tmp_path}/cache/pagoda/kv" in caplog.messages
    assert seen["settings"].drive.capacity == 8 << 30
    assert seen["metrics"] == (4.0, 3.0)
    ready = json.loads(result.out)
    assert (ready["url"], ready["model"]) == ("http://127.0.0.1:1234", "tiny")


def serving_with(
    monkeypatch: pytest.MonkeyPatch, *, open_engine: Any, run_server: Any = lambda *a, **k: None
) -> None:
    """Makes the command open and run these."""
    composed = SimpleNamespace(open_engine=open_engine)
    monkeypatch.setitem(sys.modules, "pagoda.serve.compose", composed)  # type: ignore[arg-type]
    monkeypatch.setattr("pagoda.serve.server.run_server", run_server)
    monkeypatch.setattr("pagoda.watch.logs.configure", lambda *given, **named: None)


def test_requests_are_recorded_until_the_engine_is_closed(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the engine tells of goes into the recording, up to its last word, and into metrics."""
    told: list[Any] = []
    ended = Ended(
        arrived_s=0.0,
        prompt_tokens=9,
        completion_tokens=1,
        keys=(),
        hint=Hint.ALIVE,
        reason="stop",
    )

    class Recorded(Engine):
        """An engine with blocks of 16 tokens."""

        card = SimpleNamespace(block_tokens=16)

    def open_engine(settings: Settings, observer: Any) -> Engine:
        told.append(observer)
        return Recorded()

    def run_server(*given: Any, registry: Any, **named: Any) -> None:
        told[0](ended)
        told[0](Evicted(tier="drive", blocks=4))
        told.append(registry.get_sample_value("pagoda_blocks_evicted_total", {"tier": "drive"}))

    serving_with(monkeypatch, open_engine=open_engine, run_server=run_server)
    (tmp_path / "tiny").mkdir()
    result = pagoda("serve", "--model", "tiny", "--port", "0", "--record", "day.jsonl")
    assert result.status == 0, result.err
    assert told[1] == 4.0
    trace = read_trace(tmp_path / "day.jsonl").trace
    assert trace.block_tokens == 16
    assert [(r.input_tokens, r.output_tokens, r.hint) for r in trace.requests] == [
        (9, 1, Hint.ALIVE)
    ]


def test_a_file_that_is_no_recording_is_told_before_a_model_is_loaded(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file is named and kept, with the remedy."""

    def open_engine(*given: object) -> None:
        raise AssertionError("the model was loaded")

    serving_with(monkeypatch, open_engine=open_engine)
    (tmp_path / "notes.txt").write_text("mine")
    result = pagoda("serve", "--model", "tiny", "--port", "0", "--record", "notes.txt")
    assert result.status == 2
    assert "notes.txt" in result.err
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_model_that_cannot_be_loaded_leaves_no_recording(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing was asked, so there is nothing to keep."""

    def open_engine(*given: object) -> None:
        raise ModelNotFound("there is no model", path="tiny")

    serving_with(monkeypatch, open_engine=open_engine)
    result = pagoda("serve", "--model", "tiny", "--port", "0", "--record", "day.jsonl")
    assert result.status != 0
    assert not (tmp_path / "day.jsonl").exists()
