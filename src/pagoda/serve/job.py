"""One HTTP request's sequences in the engine: submitted together, and gone with the request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from pagoda.core.errors import RequestError
from pagoda.engine.api import Engine, FinishReason, Request, Update, Usage
from pagoda.serve.channel import Channel, ChannelEnded, Ending
from pagoda.serve.traffic import Ticket, Traffic

__all__ = ["Indexed", "Job", "failure_of", "total_usage"]

Indexed = tuple[int, Update]  # the choice and its update

BAD_ENDINGS = frozenset({FinishReason.ERROR, FinishReason.CANCELLED})


class Job:
    """The sequences of one HTTP request, in the order of their choices.

    Whatever ends the `running` block, no sequence outlives it: those without a last update are
    cancelled in the engine at once.
    """

    def __init__(self, engine: Engine, requests: list[Request], ticket: Ticket) -> None:
        self._engine = engine
        self._requests = requests
        self._ticket = ticket
        self._channel = Channel()
        self._unfinished: set[int] = set()
        self._started: set[int] = set()

    @property
    def size(self) -> int:
        """How many choices there are, over all prompts."""
        return len(self._requests)

    @contextmanager
    def running(self, traffic: Traffic) -> Iterator[None]:
        """Submits all sequences. Raises what the engine's submit raises."""
        with traffic.running_on(self._channel):
            try:
                for index, request in enumerate(self._requests):
                    self._engine.submit(request, self._channel.sink(index))
                    self._unfinished.add(index)
                yield
            finally:
                for index in self._unfinished:
                    self._engine.cancel(self._requests[index].id)

    async def updates(self, receive: Receive) -> AsyncGenerator[list[Indexed], None]:
        """Batches of (choice, update) until every sequence has had its last one.

        Raises ClientDisconnect as soon as the client is gone, RequestError when a sequence
        fails or the server shuts down.
        """
        async with self._watching(receive):
            while self._unfinished:
                try:
                    batch = await self._channel.take()
                except ChannelEnded as ended:
                    raise _reason(ended.ending) from None
                for index, update in batch:
                    self._note(index, update)
                if batch:
                    yield batch

    def _note(self, index: int, update: Update) -> None:
        if index not in self._started:
            self._started.add(index)
            self._ticket.started()
        if update.finish is not None:
            self._unfinished.discard(index)

    @asynccontextmanager
    async def _watching(self, receive: Receive) -> AsyncIterator[None]:
        watcher = asyncio.create_task(self._watch(receive))
        try:
            yield
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def _watch(self, receive: Receive) -> None:
        """Ends the channel when the client hangs up; its body has been read before."""
        while (await receive())["type"] != "http.disconnect":
            continue
        self._channel.end(Ending.CLIENT_GONE)


def _reason(ending: Ending) -> Exception:
    if ending is Ending.CLIENT_GONE:
        return ClientDisconnect()
    return RequestError("the server is shutting down", code="unavailable")


def failure_of(update: Update) -> RequestError | None:
    """The error of a sequence that ended badly, or None."""
    if update.finish not in BAD_ENDINGS:
        return None
    if update.finish is FinishReason.CANCELLED:
        return RequestError("the engine stopped the request", code="unavailable")
    return RequestError(update.error or "the engine failed", code="engine_failed")


def total_usage(usages: dict[int, Usage], n: int) -> dict[str, object]:
    """OpenAI's usage object over all choices. A prompt counts once however many choices it
    has; its cached tokens are those of the choice that found the fewest, since the others may
    have found what the first one computed."""
    prompts = [
        [usages[index] for index in range(first, first + n)] for first in range(0, len(usages), n)
    ]
    fewest = [min(of_prompt, key=lambda usage: usage.cached_tokens) for of_prompt in prompts]
    prompt = sum(usage.prompt_tokens for usage in fewest)
    completion = sum(usage.completion_tokens for usage in usages.values())
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(usage.cached_tokens for usage in fewest),
            "restored_tokens": sum(usage.cached_restored for usage in fewest),
        },
    }
