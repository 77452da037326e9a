"""OpenAI-compatible servers in memory, with chosen delays, for the load generator's tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from pagoda.lab.bench.client import Asker

Step = float | bytes  # wait for seconds, or send bytes


def event(data: object) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return f"data: {text}\n\n".encode()


def delta(text: str | None, *, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def usage(prompt: int, completion: int, cached: int | None = None) -> bytes:
    counts: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return event({"choices": [], "usage": counts})


def answer(first_s: float, gap_s: float, tokens: int) -> list[Step]:
    """A complete answer: `tokens` words, the first after `first_s`, the others `gap_s` apart."""
    steps: list[Step] = [event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})]
    for number in range(tokens):
        steps += [first_s if number == 0 else gap_s, delta(f"w{number} ")]
    return [*steps, delta(None, finish="stop"), usage(100, tokens, 40), event("[DONE]")]


class _Body(httpx.AsyncByteStream):
    def __init__(self, steps: Sequence[Step], done: Callable[[], None]) -> None:
        self._steps = steps
        self._done = done

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for step in self._steps:
            if isinstance(step, bytes):
                yield step
            else:
                await asyncio.sleep(step)

    async def aclose(self) -> None:
        self._done()


@dataclass
class FakeServer(httpx.AsyncBaseTransport):
    """Answers each chat with the steps that `script` gives for its number and body."""

    script: Callable[[int, dict[str, Any]], tuple[int, Sequence[Step]]]
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[httpx.Headers] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        number = len(self.bodies)
        self.bodies.append(body)
        self.headers.append(request.headers)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        status, steps = self.script(number, body)
        return httpx.Response(status, stream=_Body(steps, self._leave))

    def _leave(self) -> None:
        self.in_flight -= 1

    def asker(self, **changes: Any) -> Asker:
        client = httpx.AsyncClient(transport=self, base_url="http://server.test")
        return Asker(client=client, model="m", max_tokens=8, **changes)
