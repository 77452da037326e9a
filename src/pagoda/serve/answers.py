"""A job's updates as an HTTP answer: gathered into one object, or streamed as events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagoda.core.errors import PagodaError
from pagoda.engine.api import TokenLogprob, Update, Usage
from pagoda.serve.errors import JsonResponse, dump, error_body, refusal_of
from pagoda.serve.job import Indexed, Job, failure_of, total_usage
from pagoda.serve.shapes import Json, Shape, shown_chars

__all__ = ["Answer", "EventStream", "Header", "gather"]

EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Header:
    """What every object of one answer repeats."""

    id: str
    created_s: int
    model: str

    def around(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "choices": choices,
        }


@dataclass(slots=True)
class Answer:
    """How one request is to be answered, and what has been seen of it so far."""

    shape: Shape
    header: Header
    job: Job
    n: int
    wants_logprobs: bool
    wants_usage: bool
    usages: dict[int, Usage] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)

    @property
    def usage(self) -> Json:
        return total_usage(self.usages, self.n)

    def see(self, index: int, update: Update) -> None:
        """Notes a choice's usage. Raises RequestError when the choice has failed."""
        failure = failure_of(update)
        if failure is not None:
            raise failure
        self.usages[index] = update.usage

    def logprobs(self, index: int, tokens: Sequence[TokenLogprob]) -> Json | None:
        """The log-probabilities of a choice's next tokens, when they were asked for."""
        if not self.wants_logprobs:
            return None
        offset = self.offsets.get(index, 0)
        self.offsets[index] = offset + sum(map(shown_chars, tokens))
        return self.shape.logprobs(tokens, offset=offset)


@dataclass(slots=True)
class _Gathered:
    """One choice as it grows."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: str = ""

    def add(self, update: Update) -> None:
        self.texts.append(update.text)
        self.logprobs.extend(update.logprobs)
        self.finish = update.finish.value if update.finish else ""


async def gather(answer: Answer, receive: Receive) -> Response:
    """The whole answer as one object. Raises RequestError when a sequence fails and
    ClientDisconnect when nobody waits for it any more."""
    gathered = [_Gathered() for _ in range(answer.job.size)]
    async with aclosing(answer.job.updates(receive)) as batches:
        async for batch in batches:
            for index, update in batch:
                answer.see(index, update)
                gathered[index].add(update)
    choices = [
        answer.shape.choice(
            index, "".join(one.texts), answer.logprobs(index, one.logprobs), one.finish
        )
        for index, one in enumerate(gathered)
    ]
    whole = answer.header.around(answer.shape.whole, choices)
    return JsonResponse({**whole, "usage": answer.usage})


class EventStream(Response):
    """The answer as server-sent events, the choices interleaved as they come.

    Owns what its request holds (`owned`) from construction to the end of the response. Updates
    that a slow client has let pile up leave in one write, each still its own event. A failure
    after the first byte is an event with an error object, and the stream ends without [DONE].
    """

    def __init__(self, answer: Answer, owned: ExitStack) -> None:
        super().__init__()
        self._answer = answer
        self._owned = owned
        self._named: set[int] = set()  # choices that have had their first chunk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        with self._owned, suppress(ClientDisconnect):
            await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
            try:
                await self._run(receive, send)
                last = self._ending()
            except PagodaError as failure:
                last = _event(error_body(refusal_of(failure)))
            await send({"type": "http.response.body", "body": last})

    async def _run(self, receive: Receive, send: Send) -> None:
        async with aclosing(self._answer.job.updates(receive)) as batches:
            async for batch in batches:
                chunk = bytearray()
                try:
                    self._add_events(chunk, batch)
                finally:  # what came before a failure is still sent
                    if chunk:
                        body = bytes(chunk)
                        await send({"type": "http.response.body", "body": body, "more_body": True})

    def _add_events(self, chunk: bytearray, batch: list[Indexed]) -> None:
        for index, update in batch:
            self._answer.see(index, update)
            if update.text or update.logprobs or update.finish:
                chunk += self._chunk([self._delta(index, update)])

    def _delta(self, index: int, update: Update) -> Json:
        first = index not in self._named
        self._named.add(index)
        logprobs = self._answer.logprobs(index, update.logprobs) if update.logprobs else None
        finish = update.finish.value if update.finish else None
        return self._answer.shape.delta(index, update.text, logprobs, finish, first=first)

    def _chunk(self, choices: list[Json], *, usage: Json | None = None) -> bytes:
        chunk = self._answer.header.around(self._answer.shape.part, choices)
        return _event({**chunk, "usage": usage} if self._answer.wants_usage else chunk)

    def _ending(self) -> bytes:
        if not self._answer.wants_usage:
            return DONE
        return self._chunk([], usage=self._answer.usage) + DONE


def _event(data: Json) -> bytes:
    return b"data: " + dump(data) + b"\n\n"
