"""Pushing prompts out of caches, so that the next answer has to restore them.

Three servers have an endpoint that empties the device cache and leaves what lies below; else it
is flooded with prompts that nobody asks again. vLLM can empty its connector as well, which shows
what lies below host memory. Either costs the server's other users their cached prefixes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pagoda.core.errors import ServerRefused
from pagoda.verify.ask import Asker, Prompt
from pagoda.verify.client import Client, Reply
from pagoda.verify.counters import tells_of_tiers

_FLOOD_WORDS = 700
_WORDS = "the old clock tower rang above a quiet square while rain fell on empty market stalls"
_TRIES, _BUSY_S = 30, 0.5
_BUSY = 400  # SGLang's, while requests or transfers are under way
_NOT_ALLOWED = {401, 403}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A call that empties caches."""

    path: str
    body: Mapping[str, object] | None = None


PAGODA = Endpoint("/cache/reset", {"scope": "device"})
VLLM = Endpoint("/reset_prefix_cache")  # in its development mode
VLLM_CONNECTOR = Endpoint("/reset_prefix_cache?reset_external=true")
SGLANG = Endpoint("/flush_cache")  # host memory as well; what is stored stays
ENDPOINTS = (PAGODA, VLLM, SGLANG)


class PushOut(Protocol):
    """A way to empty the device cache, and maybe what is next below."""

    name: str
    sure: bool  # nothing is left on the device

    def __call__(self) -> None:
        """Do it. Raises ServerError."""
        ...


class Reset:
    """By an endpoint. Servers refuse while requests or transfers hold blocks: it is tried again
    for some seconds."""

    sure = True

    def __init__(
        self, client: Client, endpoint: Endpoint, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.name = endpoint.path
        self._client = client
        self._endpoint = endpoint
        self._sleep = sleep

    def __call__(self) -> None:
        """Call it until it is done."""
        for attempt in range(_TRIES):
            if attempt:
                self._sleep(_BUSY_S)
            reply = self._client.call("POST", self._endpoint.path, self._endpoint.body)
            if reply.ok and _succeeded(reply):
                return
        told = f"status {reply.status}" if not reply.ok else "it says that it did not succeed"
        raise ServerRefused(
            f"{self._client.url}{self._endpoint.path} refuses ({told})",
            url=self._client.url,
            status=reply.status,
            remedy="try again when it is idle, or flood it instead: --flood",
        )


class Flood:
    """By prompts that nobody else asks: a third of `prompts` each time, for a run pushes out
    three times at most."""

    sure = False

    def __init__(self, asker: Asker, *, prompts: int, unique: Callable[[], Prompt]) -> None:
        self.name = "flooding"
        self._asker = asker
        self._each = prompts // 3
        self._unique = unique

    def __call__(self) -> None:
        """Send them."""
        words = _WORDS.split()
        filler = " ".join(words * (_FLOOD_WORDS // len(words)))
        for _ in range(self._each):
            begun = self._unique()
            prompt = Prompt(f"{begun.text}{filler}", begun.salt)
            self._asker.ask(prompt, answer_tokens=1)


def find_resets(
    client: Client,
    *,
    deep: bool,
    sleep: Callable[[float], None],
    tell: Callable[[str], None],
) -> list[Reset]:
    """The server's endpoints, the first of them tried once; none when it has none, or keeps it
    for others, which is told. The second, if there is one, empties what lies next below the
    device, too: where the server's tiers keep what is below that, which its metrics tell, or
    where that is asked for (`deep`)."""
    for endpoint in ENDPOINTS:
        reply = client.call("POST", endpoint.path, endpoint.body)
        if reply.status in _NOT_ALLOWED:
            tell(f"{endpoint.path} wants another key: it is left alone")
        if not (reply.ok or (endpoint is SGLANG and reply.status == _BUSY)):
            continue
        deeper = endpoint is VLLM and (deep or tells_of_tiers(client))
        found = [endpoint, VLLM_CONNECTOR] if deeper else [endpoint]
        return [Reset(client, one, sleep=sleep) for one in found]
    return []


def is_pagoda(ways: Sequence[PushOut]) -> bool:
    """Whether a server that is emptied in these ways is Pagoda's own."""
    return ways[0].name == PAGODA.path


def is_sglang(ways: Sequence[PushOut]) -> bool:
    """Whether it is SGLang."""
    return ways[0].name == SGLANG.path


def _succeeded(reply: Reply) -> bool:
    """vLLM answers 200 with `success: false` while blocks are held."""
    try:
        told = reply.json()
    except ValueError:
        return True
    return not (isinstance(told, Mapping) and told.get("success") is False)
