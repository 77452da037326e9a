"""Calls of servers that do not end, break off or send something else: each call ends in time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from pagoda.core.errors import ServerForeign, ServerTimeout, ServerUnreachable
from pagoda.verify.client import ANSWER_BYTES, Client
from pagoda.verify.counters import parse_counters, read_counters

_OK = b"HTTP/1.1 200 OK\r\n"
_TIMEOUT_S = 0.3
Speak = Callable[[socket.socket, threading.Event], None]


@contextmanager
def _server(speak: Speak) -> Iterator[str]:
    """A server that says what `speak` does to whoever has asked, until the event."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                speak(connection, over)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        listener.close()
        thread.join()


def _drips(head: bytes, drop: bytes) -> Speak:
    def speak(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.wait(_TIMEOUT_S / 10):
            connection.sendall(drop)

    return speak


def _says(content: bytes) -> Speak:
    return lambda connection, over: connection.sendall(content)


@pytest.mark.parametrize(
    "speak",
    [
        _drips(_OK, b"x"),
        _drips(b"", b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n"),
        _drips(_OK + b"content-length: 100000\r\n\r\n", b"x"),
        _drips(_OK + b"\r\nhalf", b""),  # of a body that ends with its connection
        _drips(b"", b""),
    ],
    ids=["header", "interim answers", "body", "body without a length", "nothing"],
)
def test_a_call_ends_in_time_whatever_is_sent(speak: Speak) -> None:
    """A byte now and then keeps no time-out from passing, and half a body is none."""
    with _server(speak) as url:
        client = Client(url, api_key="", timeout_s=_TIMEOUT_S)
        with pytest.raises(ServerTimeout):
            client.call("GET", "/x")
        client.close()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", ServerUnreachable),
        (b"\0\xff" * 100, ServerUnreachable),
        (_OK + b"content-length: 9\r\n\r\nabc", ServerUnreachable),
        (_OK + b"\r\n" + bytes(ANSWER_BYTES + 1), ServerForeign),
    ],
    ids=["closed", "garbage", "short", "without an end"],
)
def test_what_is_no_answer_is_told(content: bytes, error: type[Exception]) -> None:
    """A connection that is closed, bytes of something else, a body that is cut or does not end."""
    with _server(_says(content)) as url:
        client = Client(url, api_key="", timeout_s=10.0)
        with pytest.raises(error):
            client.call("GET", "/x")
        client.close()


def test_metrics_that_are_none_tell_nothing() -> None:
    """Whatever stands there: a text that the parser trips over, a count that is no number."""
    trips = b'sglang:cached_tokens_total{cache_source="host", ="b"} 5\n'
    endless = b"vllm:external_prefix_cache_hits_total NaN\n"
    for text in (trips, endless):
        with pytest.raises(ValueError, match="no "):
            parse_counters(text.decode())
        with _server(_says(_OK + b"\r\n" + text)) as url:
            client = Client(url, api_key="", timeout_s=10.0)
            assert read_counters(client) is None
            client.close()
