"""One streamed chat request to an OpenAI-compatible server, timed event by event.

Proxy variables and ~/.netrc are ignored: a proxy would be what is measured, and no secret
is sent that was not given for this server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from pagoda.core.errors import SettingsError
from pagoda.lab.bench.sample import Answer, ErrorKind, Failure
from pagoda.lab.bench.sse import BadStreamError, SseParser

ERROR_BODY_BYTES = 16 << 10
MESSAGE_CHARS = 200
CONNECT_TIMEOUT_S = 10.0

Message = dict[str, str]


def base_url(url: str) -> str:
    """The URL of a server up to and without `/v1`; raises SettingsError for anything that is
    not http(s), or that carries a password (it would be printed)."""
    unusable = SettingsError(
        f"{url!r} is not an http(s) URL", key="URL", source="flag",
        remedy="give something like http://127.0.0.1:8000",
    )  # fmt: skip
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        httpx.URL(parts.geturl())
    except (ValueError, httpx.InvalidURL) as error:
        raise unusable from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise unusable
    if parts.username or parts.password:
        raise SettingsError(
            "the URL holds a user name or password", key="URL", source="flag",
            remedy="give the key with --api-key-file or PAGODA_API_KEY",
        )  # fmt: skip
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def open_client(url: str, *, api_key: str | None) -> httpx.AsyncClient:
    """A client without limits of its own: waiting for a connection would look like latency."""
    headers = {"accept-encoding": "identity"}
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    return httpx.AsyncClient(
        base_url=base_url(url),
        headers=headers,
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        trust_env=False,
    )


async def served_model(client: httpx.AsyncClient) -> str:
    """The first model that the server names. Raises SettingsError when it names none."""
    try:
        response = await client.get("/v1/models", timeout=CONNECT_TIMEOUT_S)
        response.raise_for_status()
        name = response.json()["data"][0]["id"]
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise SettingsError(
            f"{str(client.base_url).rstrip('/')}/v1/models does not name a model: {error}",
            key="URL", source="flag",
            remedy="check that the server runs and the key is right, or give --model",
        ) from error  # fmt: skip
    return str(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Sends chats to one model of one server; `body` is what every request has in common."""

    client: httpx.AsyncClient
    model: str
    max_tokens: int
    seed: int = 0
    usage: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    def body(self, messages: list[Message]) -> dict[str, Any]:
        """The JSON of a request; `extra` wins over all else."""
        common: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "seed": self.seed,
            "stream": True,
        }
        if self.usage:
            common["stream_options"] = {"include_usage": True}
        return common | self.extra

    async def ask(self, messages: list[Message], *, limit_s: float) -> Answer:
        """Send one chat and read its answer; failures are part of the answer, never raised."""
        reading = _Reading(asyncio.get_running_loop().time)
        try:
            async with asyncio.timeout(limit_s):
                failure = await self._read(messages, reading)
        except TimeoutError:
            failure = Failure(kind=ErrorKind.TIMEOUT, message=f"no end within {limit_s:.1f} s")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure = Failure(kind=ErrorKind.CONNECT, message=_short(error))
        except httpx.HTTPError as error:
            failure = Failure(kind=ErrorKind.TRANSPORT, message=_short(error))
        except BadStreamError as error:
            failure = Failure(kind=ErrorKind.BAD_STREAM, message=_short(error))
        return reading.answer(failure)

    async def _read(self, messages: list[Message], reading: _Reading) -> Failure | None:
        body = self.body(messages)
        async with self.client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                return await _refusal(response)
            parser = SseParser()
            async for chunk in response.aiter_bytes():
                reading.take(parser.feed(chunk))
            reading.take(parser.finish())
        return reading.verdict()

    async def settle(self, *, limit_s: float) -> Asker:
        """Warm up with one short chat; an asker without `stream_options` when the server
        refuses them. Raises SettingsError when it refuses both."""
        hello = [{"role": "user", "content": "Say hello."}]
        plain = replace(self, usage=False)
        answer = await self.ask(hello, limit_s=limit_s)
        refused = answer.failure is not None and answer.failure.status in (400, 422)
        if refused and self.usage:
            answer, chosen = await plain.ask(hello, limit_s=limit_s), plain
        else:
            chosen = self
        if answer.failure is None or answer.failure.kind is ErrorKind.EMPTY:
            return chosen
        raise SettingsError(
            f"a first chat failed: {answer.failure.label}: {answer.failure.message}",
            key="URL", source="flag",
            remedy="check URL, --model, the API key and --max-tokens",
        )  # fmt: skip


def _short(error: object) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:MESSAGE_CHARS]


async def _refusal(response: httpx.Response) -> Failure:
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > ERROR_BODY_BYTES:
            break
    text = body[:ERROR_BODY_BYTES].decode("utf-8", errors="replace")
    return Failure(
        kind=ErrorKind.HTTP, status=response.status_code, message=_short(_message_in(text))
    )


def _message_in(text: str) -> str:
    """The message of an OpenAI-shaped error, else the text itself."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return text


class _Reading:
    """An answer while its events come in."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._texts: list[str] = []
        self._arrivals_s: list[float] = []
        self._usage: dict[str, Any] = {}
        self._failure: Failure | None = None
        self._ended = False
        self._events = 0

    def take(self, events: list[str]) -> None:
        """Account for events that one read from the network completed."""
        at_s = self._now_s()
        for data in events:
            self._events += 1
            if data.strip() == "[DONE]":
                self._ended = True
            else:
                self._event(_json_object(data), at_s)

    def _event(self, event: dict[str, Any], at_s: float) -> None:
        if event.get("error"):
            message = _short(_message_in(json.dumps(event)))
            self._failure = Failure(kind=ErrorKind.SERVER, message=message)
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        text = ""
        for choice in _choices(event):
            self._ended = self._ended or choice.get("finish_reason") is not None
            text += _text_of(choice)
        if text:
            self._texts.append(text)
            self._arrivals_s.append(at_s)

    def verdict(self) -> Failure | None:
        """What is wrong with a stream that ended by itself."""
        if self._failure:
            return self._failure
        if not self._events:
            return Failure(kind=ErrorKind.BAD_STREAM, message="no server-sent event in the body")
        if not self._ended:
            return Failure(kind=ErrorKind.TRUNCATED, message="no finish reason and no [DONE]")
        if not self._arrivals_s:
            return Failure(kind=ErrorKind.EMPTY, message="the answer has no text")
        return None

    def answer(self, failure: Failure | None) -> Answer:
        details = self._usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        return Answer(
            text="".join(self._texts),
            arrivals_s=tuple(self._arrivals_s),
            prompt_tokens=_count(self._usage.get("prompt_tokens")),
            completion_tokens=_count(self._usage.get("completion_tokens")),
            cached_tokens=_count(cached),
            failure=failure,
        )


def _json_object(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadStreamError(f"an event is not JSON: {data[:80]!r}") from error
    if not isinstance(event, dict):
        raise BadStreamError(f"an event is not an object: {data[:80]!r}")
    return event


def _choices(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict):
            yield choice


def _text_of(choice: dict[str, Any]) -> str:
    """Visible or reasoning text of a chat delta, or of a plain completion."""
    delta = choice.get("delta")
    parts = delta if isinstance(delta, dict) else {}
    found = (parts.get("content"), parts.get("reasoning_content"), parts.get("reasoning"))
    return "".join(text for text in (*found, choice.get("text")) if isinstance(text, str))


def _count(value: object) -> int | None:
    """A token count, None for anything that is not one."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None  # type: ignore[return-value]
