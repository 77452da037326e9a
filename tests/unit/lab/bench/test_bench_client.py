"""The client of `pagoda bench serve`: URLs, keys, fall-backs, texts."""

import asyncio
import dataclasses
from typing import Any

import httpx
import pytest
from jumping_loop import run
from streaming_server import FakeServer, delta, event

from pagoda.core.errors import SettingsError
from pagoda.lab.bench.client import base_url, open_client, served_model
from pagoda.lab.bench.sample import Answer

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://host.example/llm/v1?x=1", "https://host.example/llm"),
    ],
)
def test_url_is_taken_with_or_without_v1(given: str, base: str) -> None:
    """People paste both forms of a base URL."""
    assert base_url(given) == base


@pytest.mark.parametrize(
    "given",
    ["ftp://x", "http://", "http://user:secret@host", "http://[::1", "http://a\udcff", "x:y"],
)
def test_unusable_url_is_refused(given: str) -> None:
    """Other schemes, no host or none that can be, or a password that the report would print."""
    with pytest.raises(SettingsError):
        base_url(given)


def test_key_is_sent_and_environment_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key goes out as a bearer token; proxy variables are not obeyed."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:1")
    monkeypatch.setenv("ALL_PROXY", "http://proxy.test:1")
    client = open_client("http://server.test", api_key="secret")
    assert client.headers["authorization"] == "Bearer secret"
    assert client.trust_env is False
    assert "authorization" not in open_client("http://server.test", api_key=None).headers


def ask(server: FakeServer, **changes: Any) -> Answer:
    async def main() -> Answer:
        return await server.asker(**changes).ask(HELLO, limit_s=10)

    return run(main())


def test_extra_wins_over_the_bodys_own() -> None:
    """--extra can set or replace anything, e.g. a cache_salt or a temperature."""
    server = FakeServer(lambda _n, _b: (200, [delta("x", finish="stop")]))
    ask(server, extra={"cache_salt": "s", "temperature": 0.5})
    assert server.bodies[0]["cache_salt"] == "s"
    assert server.bodies[0]["temperature"] == 0.5
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


def test_reasoning_and_plain_completions_count_as_text() -> None:
    """The first token of a reasoning model is its first reasoning token."""
    steps = [
        event({"choices": [{"delta": {"reasoning_content": "hm "}}]}),
        event({"choices": [{"text": "plain ", "finish_reason": None}]}),
        event({"choices": "nonsense", "usage": {"prompt_tokens": True}}),
        delta("end", finish="stop"),
    ]
    answer = ask(FakeServer(lambda _n, _b: (200, steps)))
    assert answer.text == "hm plain end"
    assert answer.prompt_tokens is None
    assert answer.failure is None


def test_server_without_stream_options_is_still_measured() -> None:
    """Servers that refuse `stream_options` are asked without them, and said to be."""

    def script(_number: int, body: dict[str, Any]) -> tuple[int, list[float | bytes]]:
        refused = "stream_options" in body
        return (400, [b"unknown field"]) if refused else (200, [delta("x", finish="stop")])

    server = FakeServer(script)

    async def main() -> bool:
        return (await server.asker().settle(limit_s=5)).usage

    assert run(main()) is False
    assert len(server.bodies) == 2


def test_unusable_server_is_refused_before_the_load() -> None:
    """A wrong key shows at the first chat, with the server's words."""
    server = FakeServer(lambda _n, _b: (401, [b'{"error": {"message": "bad key"}}']))

    async def main() -> None:
        await server.asker().settle(limit_s=5)

    with pytest.raises(SettingsError, match="401: bad key"):
        run(main())


@pytest.mark.parametrize("body", ["{}", '{"data": []}', "[]", "<html>"])
def test_model_must_be_named_by_somebody(body: str) -> None:
    """A server that names no model is an error that says to give --model."""
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, text=body))

    async def main() -> str:
        async with httpx.AsyncClient(transport=transport, base_url="http://x.test") as client:
            return await served_model(client)

    with pytest.raises(SettingsError, match="does not name a model"):
        asyncio.run(main())


def test_refused_connection_is_an_answer() -> None:
    """No server at all is a counted failure of the request, not an exception."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    async def main() -> Answer:
        asker = FakeServer(lambda _n, _b: (200, [])).asker()
        client = httpx.AsyncClient(
            transport=httpx.MockTransport(refuse), base_url="http://server.test"
        )
        return await dataclasses.replace(asker, client=client).ask(HELLO, limit_s=5)

    answer = asyncio.run(main())
    assert answer.failure is not None
    assert answer.failure.label == "connect"
