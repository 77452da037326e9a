"""Pushing prompts out of the device cache, so that the next answer has to restore them.

Three servers have an endpoint that empties it and leaves what lies below; else it is flooded with
prompts that nobody asks again. Either costs the server's other users their cached prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pagoda.core.errors import ServerRefused
from pagoda.verify.ask import Asker, Prompt
from pagoda.verify.client import Client

_FLOOD_WORDS = 700
_WORDS = "the old clock tower rang above a quiet square while rain fell on empty market stalls"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A call that empties the device cache and nothing below."""

    path: str
    body: Mapping[str, object] | None


ENDPOINTS = (
    Endpoint("/cache/reset", {"scope": "device"}),  # Pagoda
    Endpoint("/reset_prefix_cache", None),  # vLLM, in its development mode
    Endpoint("/flush_cache", None),  # SGLang
)


class PushOut(Protocol):
    """A way to empty the device cache."""

    name: str
    sure: bool  # nothing is left on the device

    def __call__(self) -> None:
        """Do it. Raises ServerError."""
        ...


class Reset:
    """By an endpoint."""

    sure = True

    def __init__(self, client: Client, endpoint: Endpoint) -> None:
        self.name = endpoint.path
        self._client = client
        self._endpoint = endpoint

    def __call__(self) -> None:
        """Call it."""
        if not (reply := self._client.call("POST", self._endpoint.path, self._endpoint.body)).ok:
            raise ServerRefused(
                f"{self._client.url}{self._endpoint.path} refuses (status {reply.status})",
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


def find_reset(client: Client) -> Reset | None:
    """The server's endpoint for it, tried once; None when it has none."""
    for endpoint in ENDPOINTS:
        if client.call("POST", endpoint.path, endpoint.body).ok:
            return Reset(client, endpoint)
    return None
