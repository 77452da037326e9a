"""Starting, refusing strangers, and stopping without losing an answer."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from pagoda.core.errors import SettingsError
from pagoda.engine.api import CacheScope
from pagoda.serve import ServeConfig, Server, bind
from pagoda.testing.engine import FakeEngine


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.7", "example.org"])
def test_other_hosts_than_loopback_need_a_key(host):
    """Nothing but this machine can reach a server without a key, whatever the address."""
    with pytest.raises(SettingsError, match="API key") as refusal:
        ServeConfig(host=host)
    assert refusal.value.key == "serve.host"
    assert ServeConfig(host=host, api_key="k").host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1"])
def test_loopback_hosts_need_no_key(host):
    """Every spelling of this machine is accepted."""
    assert ServeConfig(host=host).api_key is None


@pytest.mark.parametrize(
    "bad",
    [{"port": -1}, {"port": 65536}, {"api_key": " "}, {"max_n": 0}, {"header_timeout_s": 0}],
    ids=str,
)
def test_bad_settings_are_named(bad):
    """The error's key is the setting's name."""
    with pytest.raises(SettingsError) as refusal:
        ServeConfig(**bad)
    assert refusal.value.key == f"serve.{next(iter(bad))}"


def test_the_key_is_not_in_the_settings_representation():
    """A configuration that ends up in a log does not give the key away."""
    assert "sk-private" not in repr(ServeConfig(api_key="sk-private"))


def test_a_key_is_demanded_everywhere_but_for_health(serve):
    """No key, a wrong one, another scheme: 401 on every path, existing or not."""
    serving = serve(api_key="sk-private")
    for given in (None, "Bearer wrong", "Bearer", "Basic sk-private", "Bearer sk-privat\xe9"):
        headers = {} if given is None else {"authorization": given.encode("latin-1")}
        for path in ("/v1/models", "/metrics", "/cache/reset", "/nothing"):
            refused = httpx.get(serving.url + path, headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert refused.json()["error"]["code"] == "invalid_api_key"
            assert "sk-private" not in refused.text
    assert serving.healthy()
    assert serving.client(api_key="sk-private").models.list().data[0].id == "fake"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8000", 403),
        ("localhost.evil.example", 403),
        ("[::ffff:192.0.2.1]:80", 403),
    ],
)
def test_without_a_key_only_local_names_are_answered(serving, host, status):
    """A web page whose name was pointed at 127.0.0.1 is refused by its Host header."""
    answer = httpx.get(serving.url + "/v1/models", headers={"host": host})
    assert answer.status_code == status


def test_health_tells_an_engine_that_died(serving):
    """200 while the engine runs, 503 once it does not."""
    assert httpx.get(serving.url + "/health").json() == {"status": "ok"}
    serving.engine.die()
    answer = httpx.get(serving.url + "/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "unhealthy"})


def test_metrics_show_the_registry_and_the_servers_counts():
    """What the caller registered is there, with waiting, running and answered requests."""
    registry = CollectorRegistry()
    Gauge("my_own", "A metric of the caller", registry=registry).set(4)
    ready: queue.Queue[str] = queue.Queue()
    server = Server(FakeEngine(), ServeConfig(port=0), registry=registry, on_ready=ready.put)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        url = ready.get(timeout=10)
        httpx.get(url + "/nothing")
        text = httpx.get(url + "/metrics").text
    finally:
        server.stop()
        thread.join(10)
    assert "my_own 4.0" in text
    assert 'pagoda_http_responses_total{status="404"} 1.0' in text
    assert "pagoda_http_waiting_sequences 0.0" in text
    assert "pagoda_http_running_requests 0.0" in text


def test_the_cache_can_be_reset_by_scope(serving):
    """The engine is told which tiers, and its count comes back."""
    for scope, released in (("device", 3), ("all", 7)):
        answer = serving.post("/cache/reset", {"scope": scope})
        assert answer.json() == {"released": released}
    assert serving.engine.resets == [CacheScope.DEVICE, CacheScope.ALL]
    refused = serving.post("/cache/reset", {"scope": "disk"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "scope")


def test_a_cache_reset_that_waits_for_the_engine_holds_up_nobody(serving, monkeypatch):
    """A reset waits for the engine's current step, up to a minute when that is stuck; it did so
    in the event loop, where every stream and even /health stood still with it."""
    asked, go_on = threading.Event(), threading.Event()

    def wait(scope):
        asked.set()
        assert go_on.wait(10), "the test lets it go on"
        return 5

    monkeypatch.setattr(serving.engine, "reset_cache", wait)
    answers = queue.Queue()
    asking = threading.Thread(
        target=lambda: answers.put(serving.post("/cache/reset", {"scope": "all"}))
    )
    asking.start()
    try:
        assert asked.wait(5)
        assert httpx.get(serving.url + "/health", timeout=3).status_code == 200
    finally:
        go_on.set()
        asking.join(10)
    assert answers.get(timeout=1).json() == {"released": 5}


def test_answers_are_not_delayed_by_nagles_algorithm(serving, eventually):
    """Regression: the listener's sockets had the algorithm on, and each short answer took
    the 40 ms of the client's delayed acknowledgement."""
    with serving.connect():
        assert eventually(lambda: serving.connections == 1)
        (connection,) = serving.server._uvicorn.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_port_in_use_is_a_settings_error_and_closes_the_engine(serving):
    """The reason and the address are in the error; the engine does not stay behind."""
    engine = FakeEngine()
    port = int(serving.url.rpartition(":")[2])
    with pytest.raises(SettingsError, match=f"127.0.0.1:{port}"):
        Server(engine, ServeConfig(port=port)).run()
    assert engine.closed


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_claimed_address_takes_no_client_until_the_server_runs(host):
    """While a model loads, clients are refused, not left waiting; then the same port answers."""
    config = ServeConfig(host=host, port=0)
    address = bind(config)
    name = address.getsockname()[:2]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(name, timeout=5)
    ready: queue.Queue[str] = queue.Queue()
    server = Server(FakeEngine(), config, address=address, on_ready=ready.put)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        url = ready.get(timeout=10)
        assert url.endswith(f":{name[1]}")
        assert httpx.get(url + "/health").status_code == 200
    finally:
        server.stop()
        thread.join(10)


def test_an_address_that_another_took_meanwhile_is_told():
    """Two may claim one port; who listens second is told so, and closes the engine."""
    first = bind(ServeConfig(port=0))
    config = ServeConfig(port=first.getsockname()[1])
    second = bind(config)
    engine = FakeEngine()
    with first:
        first.listen()
        with pytest.raises(SettingsError, match="cannot listen"):
            Server(engine, config, address=second).run()
    assert engine.closed


def test_a_stop_lets_running_answers_finish_and_takes_no_new_ones(serve, eventually, monkeypatch):
    """A stream that is under way comes to its end; then the engine is closed."""
    engine, go_on = FakeEngine(), threading.Event()
    step = engine._step

    def wait(sequence):
        assert sequence.made == 0 or go_on.wait(10), "the test lets it go on"
        step(sequence)

    monkeypatch.setattr(engine, "_step", wait)
    serving = serve(engine, grace_s=20.0)
    stream = serving.client().completions.create(
        model="fake", prompt="a long enough answer", stream=True, max_tokens=100
    )
    text = next(iter(stream)).choices[0].text
    serving.server.stop()
    assert eventually(lambda: serving.traffic.draining)
    assert eventually(lambda: refused(serving.url))
    assert not engine.closed
    go_on.set()
    text += "".join(chunk.choices[0].text for chunk in stream)
    assert text == "a long enough answer"
    serving.thread.join(10)
    assert engine.closed
    assert engine.cancelled == []


def test_answers_longer_than_the_grace_period_end_with_an_error(serve, eventually):
    """After grace_s what still runs is cancelled: an error event, or a 503 without a stream."""
    engine = FakeEngine(token_s=0.05, script=lambda request: "word " * 400)
    serving = serve(engine, grace_s=0.3)
    whole: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: whole.append(serving.complete(max_tokens=2000)))
    asking.start()
    body = {"prompt": "x", "max_tokens": 2000, "stream": True}
    with httpx.stream("POST", serving.url + "/v1/completions", json=body) as streamed:
        lines = streamed.iter_lines()
        next(lines)
        assert eventually(lambda: engine.live == 2)
        serving.server.stop()
        last = [line for line in lines if line][-1]
    asking.join(10)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "unavailable"
    assert whole[0].status_code == 503
    serving.thread.join(10)
    assert len(engine.cancelled) == 2


SCRIPT = """
from pagoda.serve import ServeConfig, run_server
from pagoda.testing.engine import FakeEngine
engine = FakeEngine(token_s=0.02, script=lambda request: "word " * 10)
run_server(engine, ServeConfig(port=0, grace_s={grace_s}))
print("closed" if engine.closed else "open", engine.live)
"""


@pytest.fixture
def process():
    """Starts a server process; kills what is left of it."""
    started: list[subprocess.Popen[str]] = []

    def start(grace_s: float) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", SCRIPT.format(grace_s=grace_s)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        made = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        started.append(made)
        said = made.stdout.readline()
        assert said.startswith("Listening on http://127.0.0.1:")
        return made, said.split()[-1]

    yield start
    for made in started:
        if made.poll() is None:
            made.kill()
        made.communicate()


def refused(url: str) -> bool:
    """Whether no new connection is taken."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly(process, number):
    """The running stream ends well, the engine is closed, the exit status is zero."""
    made, url = process(grace_s=20)
    body = {"prompt": "x", "max_tokens": 2000, "stream": True}
    with httpx.stream("POST", url + "/v1/completions", json=body, timeout=20) as streamed:
        lines = streamed.iter_lines()
        next(lines)
        made.send_signal(number)
        rest = [line for line in lines if line]
    out, err = made.communicate(timeout=20)
    assert rest[-1] == "data: [DONE]"
    assert (made.returncode, out.split()) == (0, ["closed", "0"]), err


def test_a_second_signal_does_not_wait(process, eventually):
    """Someone who presses Ctrl-C twice wants out, and the engine is closed all the same."""
    made, url = process(grace_s=60)
    body = {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", url + "/v1/completions", json=body, timeout=20) as streamed:
        lines = streamed.iter_lines()  # kept: a forgotten generator closes the connection
        next(lines)
        began = time.monotonic()
        made.send_signal(signal.SIGINT)
        assert eventually(lambda: refused(url)), "the first one was heard of"
        assert made.poll() is None
        made.send_signal(signal.SIGINT)
        out, err = made.communicate(timeout=20)
    assert time.monotonic() - began < 15
    assert (made.returncode, out.split()) == (0, ["closed", "0"]), err
