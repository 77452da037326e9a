"""Fixtures for the command line: run it in this process, and a scripted OpenAI server."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from pagoda.cli.main import app


@dataclass(frozen=True)
class Result:
    """What a command line gave back."""

    status: int
    out: str
    err: str


Pagoda = Callable[..., Result]


@pytest.fixture
def pagoda(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Pagoda:
    """Run `pagoda ARGS` in this process, in an empty directory with an empty environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PAGODA_DEMO_MODEL", raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)

    def run(*args: str) -> Result:
        with pytest.raises(SystemExit) as ended:
            get_command(app)(list(args), prog_name="pagoda")
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return run


@dataclass
class FakeServer:
    """An OpenAI server that answers with a script and remembers what it was asked."""

    url: str = ""
    pieces: list[str] = field(default_factory=lambda: ["Hel", "lo"])
    usage: dict[str, Any] | None = field(
        default_factory=lambda: {
            "prompt_tokens": 20,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 16},
        }
    )
    status: int = 200
    error: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    hold: threading.Event | None = None  # the stream waits for it after its pieces
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def stream(self) -> Iterator[bytes]:
        """The events of one answer."""
        if self.raw is not None:
            yield self.raw
            return
        for piece in self.pieces:
            yield _event({"choices": [{"delta": {"content": piece}}]})
        if self.hold is not None:
            self.hold.wait(20)
        if self.usage is not None:
            yield _event({"choices": [], "usage": self.usage})
        yield b"data: [DONE]\n\n"


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.keys.append(self.headers["authorization"])
            if fake.status in {401, 403}:
                self.answer(fake.status, json.dumps({"error": fake.error}).encode())
            else:
                self.answer(200, json.dumps({"data": [{"id": "tiny"}]}).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            fake.bodies.append(json.loads(body))
            if fake.status != 200:
                self.answer(fake.status, json.dumps({"error": fake.error}).encode())
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in fake.stream():
                self.wfile.write(event)
                self.wfile.flush()

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler


@pytest.fixture
def fake_server() -> Iterator[FakeServer]:
    """A server on a free loopback port that ends with the test."""
    fake = FakeServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield fake
    if fake.hold is not None:
        fake.hold.set()
    server.shutdown()
    server.server_close()
    thread.join()
