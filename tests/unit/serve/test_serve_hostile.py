"""Clients that send nothing, too slowly, too much, or leave: the server lives on, unharmed."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading

import pytest

from pagoda.testing.engine import FakeEngine

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def request_bytes(**fields: object) -> bytes:
    body = json.dumps({"prompt": "hello", **fields}).encode()
    return HEAD + b"content-length: %d\r\n\r\n" % len(body) + body


def slow_engine() -> FakeEngine:
    return FakeEngine(token_s=0.02, script=lambda request: "word " * 400)


def read_to_end(peer: socket.socket) -> bytes:
    """All that comes until the server closes; a reset counts as the end."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while chunk := peer.recv(65536):
            got += chunk
    return got


def send_for_ever(peer: socket.socket, chunk: bytes) -> None:
    while True:
        peer.sendall(chunk)


def reset(peer: socket.socket) -> None:
    """Closes with a RST, as a killed process or a dropped link would."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def test_silent_connections_are_closed_and_do_not_stop_others(serve, eventually):
    """500 connections that never send a byte: others are served at once, then all are closed."""
    serving = serve(header_timeout_s=3.0)
    silent = [serving.connect() for _ in range(500)]
    try:
        assert eventually(lambda: serving.connections == 500)
        assert serving.complete(max_tokens=1).status_code == 200
        assert eventually(lambda: serving.connections == 0)
        assert all(read_to_end(peer) == b"" for peer in silent)
    finally:
        for peer in silent:
            peer.close()
    assert serving.healthy()


def test_more_connections_than_allowed_push_out_the_silent_ones(serve, eventually):
    """At the limit, newcomers are served at the cost of those that have asked for nothing."""
    serving = serve(max_connections=20, header_timeout_s=60.0)
    silent = [serving.connect() for _ in range(100)]
    try:
        assert eventually(lambda: serving.connections <= 20)
        assert serving.complete(max_tokens=1).status_code == 200
    finally:
        for peer in silent:
            peer.close()


def test_when_every_connection_is_busy_newcomers_get_a_503(serve, eventually):
    """Running answers are not cut off to make room."""
    engine = slow_engine()
    serving = serve(engine, max_connections=3)
    busy = [serving.connect() for _ in range(3)]
    for peer in busy:
        peer.sendall(request_bytes(stream=True, max_tokens=1000))
    assert eventually(lambda: engine.live == 3)
    with serving.connect() as newcomer:
        refused = read_to_end(newcomer)
    assert refused.startswith(b"HTTP/1.1 503")
    assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "unavailable"
    assert engine.live == 3
    for peer in busy:
        peer.close()
    assert eventually(lambda: engine.live == 0)


def test_a_head_that_drips_in_is_cut_off(serve, eventually):
    """Slowloris: single bytes do not extend the deadline, on a first request or a later one."""
    serving = serve(header_timeout_s=0.6, idle_timeout_s=60.0)
    fresh, used = serving.connect(), serving.connect()
    used.sendall(request_bytes(max_tokens=1))
    assert used.recv(65536).startswith(b"HTTP/1.1 200")
    stop = threading.Event()

    def drip() -> None:
        for letter in HEAD * 3:
            for peer in (fresh, used):
                with contextlib.suppress(OSError):
                    peer.send(bytes([letter]))
            if stop.wait(0.03):
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert eventually(lambda: serving.connections == 0, within_s=4)
    finally:
        stop.set()
        dripping.join()
        fresh.close()
        used.close()


def test_an_idle_connection_is_closed_after_its_own_time(serve, eventually):
    """Between two requests a client may pause for idle_timeout_s, and no longer."""
    serving = serve(header_timeout_s=60.0, idle_timeout_s=0.5)
    with serving.connect() as peer:
        peer.sendall(request_bytes(max_tokens=1))
        assert peer.recv(65536).startswith(b"HTTP/1.1 200")
        assert serving.connections == 1
        assert eventually(lambda: serving.connections == 0, within_s=4)


@pytest.mark.parametrize(
    "start",
    [
        HEAD + b"content-length: 1000\r\n\r\n{",
        HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
    ids=["announced", "chunked"],
)
def test_a_body_that_never_ends_is_cut_off(serve, eventually, start):
    """Neither a body that stops halfway nor chunks that go on for ever hold a place."""
    serving = serve(body_timeout_s=0.6)
    with serving.connect() as peer:
        peer.sendall(start)
        read_to_end(peer)
        assert eventually(lambda: serving.connections == 0)


def test_endless_chunks_are_refused_and_then_cut_off(serve, eventually):
    """A chunked body beyond the limit gets its 413, and may not go on being sent for ever."""
    serving = serve(max_body_bytes=10_000, body_timeout_s=1.0)
    with serving.connect() as peer:
        peer.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):
            send_for_ever(peer, b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        assert eventually(lambda: serving.connections == 0)
    assert serving.traffic.responses[413] == 1
    assert serving.healthy()


@pytest.mark.parametrize("leave", [socket.socket.close, reset], ids=["close", "reset"])
@pytest.mark.parametrize("stream", [True, False], ids=["mid-stream", "before the answer"])
def test_clients_that_vanish_have_their_requests_cancelled(serve, eventually, leave, stream):
    """Fifty clients leave; each request is cancelled at once, long before it would end."""
    engine = slow_engine()
    serving = serve(engine)
    peers = [serving.connect() for _ in range(50)]
    for peer in peers:
        peer.sendall(request_bytes(stream=stream, max_tokens=2000, n=2))
    assert eventually(lambda: engine.live == 100)
    if stream:
        assert all(b"200 OK" in peer.recv(1000) for peer in peers)
    for peer in peers:
        leave(peer)
    assert eventually(lambda: engine.live == 0, within_s=3)
    assert len(engine.cancelled) == 100
    assert serving.complete(max_tokens=1).status_code == 200


def test_a_client_that_vanishes_behind_an_early_second_request_is_noticed(serve, eventually):
    """A pipelined request must not keep the server from seeing the client leave."""
    engine = slow_engine()
    serving = serve(engine)
    peer = serving.connect()
    peer.sendall(request_bytes(max_tokens=2000))
    assert eventually(lambda: engine.live == 1)
    peer.sendall(request_bytes(max_tokens=2000))
    (connection,) = serving.server._uvicorn.server_state.connections
    assert eventually(lambda: connection.conn.trailing_data[0])
    peer.close()
    assert eventually(lambda: engine.live == 0, within_s=3)


def test_pipelined_requests_are_answered_in_order(serving):
    """Ten requests in one packet get ten answers."""
    with serving.connect() as peer:
        sent = [request_bytes(prompt=f"number {at}") for at in range(9)]
        last = request_bytes(prompt="number 9").replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        peer.sendall(b"".join([*sent, last]))
        answers = read_to_end(peer)
    assert answers.count(b"HTTP/1.1 200") == 10
    places = [answers.index(b"number %d" % at) for at in range(10)]
    assert places == sorted(places)


def test_too_much_sent_ahead_ends_the_connection(serve, eventually):
    """What a client sends before its answer is there is bounded."""
    engine = slow_engine()
    serving = serve(engine)
    with serving.connect() as peer:
        peer.sendall(request_bytes(stream=True, max_tokens=2000))
        assert eventually(lambda: engine.live == 1)
        with contextlib.suppress(ConnectionError):
            peer.sendall(b"x" * (1 << 20))
        assert eventually(lambda: engine.live == 0, within_s=3)


def test_a_client_that_reads_nothing_is_cut_off(serve, eventually):
    """An answer that nobody reads ends after stall_timeout_s, request and connection both."""
    engine = FakeEngine(script=lambda request: "x" * 1000)
    serving = serve(engine, stall_timeout_s=1.0)
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = serving.url.removeprefix("http://").split(":")
    peer.connect((host, int(port)))
    peer.sendall(
        request_bytes(
            stream=True, max_tokens=3000, n=16, ignore_eos=True, logprobs=20, prompt=["a", "b"]
        )
    )
    assert eventually(lambda: engine.submitted)
    assert eventually(lambda: serving.connections == 0)
    assert eventually(lambda: engine.live == 0)
    peer.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
        b"GET\r\n\r\n",
        b"\r\n" * 100 + b"\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nx" + b"y" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 50_000 + b"\r\n",
        HEAD + b"content-length: -5\r\n\r\n",
        HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"transfer-encoding: gzip\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-key: x\r\n\r\nGARBAGE\x00\r\n\r\n",
    ],
    ids=[
        "TLS", "no target", "NUL", "version", "two hosts", "long header", "many headers",
        "negative length", "two lengths", "bad chunk", "unknown coding", "websocket",
    ],
)  # fmt: skip
def test_what_is_not_http_is_refused_or_closed(serving, garbage):
    """A 4xx or a clean close, never a hang, and the next client is served."""
    with serving.connect() as peer:
        with contextlib.suppress(OSError):  # the server may have closed already
            peer.sendall(garbage)
            peer.shutdown(socket.SHUT_WR)
        answer = read_to_end(peer)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
    assert serving.healthy()


def test_garbage_in_the_middle_of_a_body_releases_the_request(serve, eventually):
    """A body that stops being HTTP takes its buffered bytes with it."""
    serving = serve()
    with serving.connect() as peer:
        peer.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\n{    \r\n")
        assert eventually(lambda: serving.traffic.buffered_bytes == 5)
        peer.sendall(b"not a chunk\r\n")
        read_to_end(peer)
    assert eventually(lambda: serving.traffic.buffered_bytes == 0)
    assert eventually(lambda: serving.connections == 0)


def test_a_malformed_request_is_answered_in_openais_shape(serving):
    """Even below the application an error is the object that clients know."""
    with serving.connect() as peer:
        peer.sendall(b"NONSENSE\r\n\r\n")
        answer = read_to_end(peer)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"application/json" in head
    assert json.loads(body)["error"]["code"] == "invalid_request"
