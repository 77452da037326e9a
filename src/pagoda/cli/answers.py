"""Where `pagoda chat` gets its answers: an OpenAI server, or an engine in this process."""

from __future__ import annotations

import itertools
import json
import queue
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from pagoda.core.errors import PagodaError, RequestError, SettingsError
from pagoda.engine.api import Engine, FinishReason, Request, Sampling, Update, Usage
from pagoda.lab.bench.client import base_url
from pagoda.lab.bench.sse import BadStreamError, SseParser

Message = dict[str, str]
_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 600.0  # a long prompt on a slow machine; Ctrl-C is quicker
_ANSWER_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to answer; None leaves it to the server."""

    temperature: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Tokens of one answer; cached_tokens is None when the server does not tell."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None


class Source(Protocol):
    """Something that answers."""

    def connect(self) -> str:
        """Make ready; returns who answers, for people. Raises PagodaError with a remedy."""
        ...

    def stream(self, messages: Sequence[Message]) -> Generator[str | Counts, None, None]:
        """The answer's text in pieces, then its counts if they are known. Closing the iterator
        stops the answer."""
        ...

    def close(self) -> None:
        """Let go of the server or the engine."""
        ...


class ServerSource:
    """Answers from any OpenAI-compatible server."""

    def __init__(self, url: str, *, model: str | None, api_key: str, options: Options) -> None:
        self._url = base_url(url)
        self._model = model
        self._options = options
        self._client = httpx.Client(
            base_url=self._url,
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
            trust_env=False,  # a proxy cannot reach this machine's loopback
        )

    def connect(self) -> str:
        """Ask what is served; the first model is taken when none was named."""
        try:
            response = self._client.get("/v1/models")
        except httpx.HTTPError as error:
            raise self._lost(error) from error
        self._require_ok(response)
        names = _model_names(response)
        if not names:
            raise PagodaError(
                f"{self._url} answers, but names no model",
                remedy="is it an OpenAI-compatible server? give its URL without /v1/…",
            )
        self._model = self._model or names[0]
        return f"{self._model} at {self._url}"

    def stream(self, messages: Sequence[Message]) -> Generator[str | Counts, None, None]:
        """POST /v1/chat/completions with stream, until [DONE]."""
        try:
            with self._client.stream(
                "POST", "/v1/chat/completions", json=self._body(messages)
            ) as response:
                if not response.is_success:
                    response.read()
                    self._require_ok(response)
                yield from _pieces(response.iter_bytes())
        except httpx.HTTPError as error:
            raise self._lost(error) from error
        except BadStreamError as error:
            raise PagodaError(f"{self._url} sent no usable event stream: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _body(self, messages: Sequence[Message]) -> dict[str, object]:
        asked = {
            "temperature": self._options.temperature,
            "max_tokens": self._options.max_tokens,
        }
        return {
            "model": self._model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        } | {name: value for name, value in asked.items() if value is not None}

    def _require_ok(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        message = f"{self._url} refused: {_error_message(response)} (status {response.status_code})"
        if response.status_code in {401, 403}:
            raise SettingsError(
                message,
                key="api_key",
                source="PAGODA_API_KEY",
                remedy="put the server's key into PAGODA_API_KEY or name a file, --api-key-file",
            )
        if response.status_code < 500:
            full = "context_length" in response.text
            remedy = "the conversation is too long: start a new one" if full else ""
            raise RequestError(message, remedy=remedy)
        raise PagodaError(message, remedy="the server's log says more")

    def _lost(self, error: httpx.HTTPError) -> PagodaError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return PagodaError(
                f"nothing answers at {self._url}",
                remedy="start a server with `pagoda serve --model DIR`, name another with --url, "
                "or chat without one: `pagoda chat --model DIR`",
            )
        return PagodaError(
            f"lost the connection to {self._url} ({type(error).__name__})",
            remedy="the server may have stopped: its log says more",
        )


class EngineSource:
    """Answers from an engine in this process."""

    def __init__(self, engine: Engine, *, options: Options) -> None:
        self._engine = engine
        self._options = options
        self._numbers = itertools.count(1)

    def connect(self) -> str:
        """The engine runs already."""
        return f"{self._engine.card.name} in this process"

    def stream(self, messages: Sequence[Message]) -> Generator[str | Counts, None, None]:
        """Submit the chat; the engine's thread fills a queue that this one empties."""
        prompt = tuple(self._engine.codec.render_chat(list(messages)))
        request = Request(
            id=f"chat-{next(self._numbers)}", prompt=prompt, sampling=self._sampling(len(prompt))
        )
        updates: queue.SimpleQueue[Update] = queue.SimpleQueue()
        self._engine.submit(request, updates.put)
        finished = False
        try:
            while not finished:
                update = updates.get()
                finished = update.finish is not None
                if update.finish is FinishReason.ERROR:
                    raise PagodaError(f"the engine failed: {update.error}")
                if update.text:
                    yield update.text
            yield _engine_counts(update.usage)
        finally:
            if not finished:
                self._engine.cancel(request.id)

    def close(self) -> None:
        """Stop the engine; it writes what is pending first."""
        self._engine.close()

    def _sampling(self, prompt_tokens: int) -> Sampling:
        room = max(1, self._engine.card.context_tokens - prompt_tokens)
        limit = self._options.max_tokens or min(_ANSWER_TOKENS, room)
        temperature = self._options.temperature
        if temperature is None:
            return Sampling(max_tokens=limit)
        return Sampling(max_tokens=limit, temperature=temperature)


def _engine_counts(usage: Usage) -> Counts:
    return Counts(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
    )


def _pieces(chunks: Iterator[bytes]) -> Iterator[str | Counts]:
    """Text and counts of a stream of chat completion chunks."""
    parser = SseParser()
    for chunk in chunks:
        for data in parser.feed(chunk):
            if data == "[DONE]":
                return
            yield from _event_pieces(data)
    for data in parser.finish():
        if data != "[DONE]":
            yield from _event_pieces(data)


def _event_pieces(data: str) -> Iterator[str | Counts]:
    try:
        event = json.loads(data)
    except ValueError as error:
        raise BadStreamError("an event is not JSON") from error
    if not isinstance(event, dict):
        raise BadStreamError("an event is not an object")
    if event.get("error"):
        raise PagodaError(f"the server failed while answering: {_error_text(event['error'])}")
    for choice in event.get("choices") or ():
        text = (choice.get("delta") or {}).get("content")
        if text:
            yield str(text)
    if event.get("usage"):
        yield _server_counts(event["usage"])


def _server_counts(usage: Mapping[str, Any]) -> Counts:
    details = usage.get("prompt_tokens_details") or {}
    return Counts(
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        completion_tokens=int(usage.get("completion_tokens") or 0),
        cached_tokens=details.get("cached_tokens"),
    )


def _model_names(response: httpx.Response) -> list[str]:
    try:
        return [str(model["id"]) for model in response.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _error_message(response: httpx.Response) -> str:
    try:
        return _error_text(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return response.reason_phrase or "no reason given"


def _error_text(error: object) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(text).split())[:500]
