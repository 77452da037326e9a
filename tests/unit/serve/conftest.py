"""A server on a free loopback port over a fake engine, checked for leaks after every test."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from pagoda.serve import ServeConfig, Server
from pagoda.testing.engine import FakeEngine

WAIT_S = 10.0


@pytest.fixture
def eventually() -> Callable[..., bool]:
    """Tells whether a condition comes true in time."""

    def wait(holds: Callable[[], object], *, within_s: float = WAIT_S) -> bool:
        end = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    return wait


@dataclass
class Serving:
    """A running server, its engine, and ways to talk to it."""

    url: str
    engine: FakeEngine
    server: Server
    thread: threading.Thread

    @property
    def traffic(self):
        return self.server._traffic

    @property
    def connections(self) -> int:
        return len(self.server._uvicorn.server_state.connections)

    def post(self, path: str, body: object = None, **more: object) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=WAIT_S, **more)

    def chat(self, **fields: object) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": "hi"}], **fields}
        return self.post("/v1/chat/completions", body)

    def complete(self, prompt: object = "hi", **fields: object) -> httpx.Response:
        return self.post("/v1/completions", {"prompt": prompt, **fields})

    def client(self, **settings: object) -> openai.OpenAI:
        settings = {"api_key": "none", "max_retries": 0, "timeout": WAIT_S, **settings}
        return openai.OpenAI(base_url=self.url + "/v1", **settings)

    def connect(self) -> socket.socket:
        parts = urlsplit(self.url)
        made = socket.create_connection((parts.hostname, parts.port), timeout=WAIT_S)
        made.settimeout(WAIT_S)
        return made

    def healthy(self) -> bool:
        return httpx.get(self.url + "/health", timeout=WAIT_S).status_code == 200


@pytest.fixture
def serve() -> Iterator[Callable[..., Serving]]:
    """Starts servers: serve(engine, **ServeConfig fields). Afterwards each must have released
    every request, body byte and waiting place, and closed its engine."""
    started: list[Serving] = []

    def start(engine: FakeEngine | None = None, **settings: object) -> Serving:
        engine = engine or FakeEngine()
        ready: queue.Queue[str] = queue.Queue()
        config = ServeConfig(**{"port": 0, "grace_s": 1.0, **settings})
        server = Server(engine, config, on_ready=ready.put)
        thread = threading.Thread(target=server.run)
        thread.start()
        serving = Serving(ready.get(timeout=WAIT_S), engine, server, thread)
        started.append(serving)
        return serving

    yield start
    for serving in started:
        serving.server.stop()
    for serving in started:
        serving.thread.join(WAIT_S)
        assert not serving.thread.is_alive(), "the server did not stop"
        assert serving.engine.closed
        assert serving.engine.live == 0, "the engine still works on a request"
        traffic = serving.traffic
        assert (traffic.waiting, traffic.running, traffic.buffered_bytes) == (0, 0, 0)


@pytest.fixture
def serving(serve) -> Serving:
    """One server with everything at its default."""
    return serve()
