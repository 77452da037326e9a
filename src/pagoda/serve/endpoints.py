"""The HTTP endpoints over an engine."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pagoda.core.errors import RequestError
from pagoda.engine.api import Engine
from pagoda.serve.answers import Answer, EventStream, Header, gather
from pagoda.serve.body import parse_body
from pagoda.serve.cache import CacheEndpoints
from pagoda.serve.choices import check_limits, requests_for
from pagoda.serve.config import ServeConfig
from pagoda.serve.errors import JsonResponse
from pagoda.serve.hints import session_hint
from pagoda.serve.job import Job
from pagoda.serve.pins import pin_prompt
from pagoda.serve.prompts import Tokens, completion_prompts, message_prompt, room_for_answer
from pagoda.serve.schema import ChatBody, CommonBody, CompletionBody
from pagoda.serve.shapes import ChatShape, CompletionShape, Json, Shape
from pagoda.serve.traffic import Traffic

__all__ = ["Endpoints"]


class Endpoints:
    """One server's handlers; `routes` lists them."""

    def __init__(
        self, engine: Engine, config: ServeConfig, traffic: Traffic, registry: CollectorRegistry
    ) -> None:
        self._engine = engine
        self._config = config
        self._traffic = traffic
        self._registry = registry
        self._card = engine.card
        self._model = config.model_name or self._card.name
        self._created_s = self._card.created_s or int(time.time())

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{name:path}", self.model, methods=["GET"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            *CacheEndpoints(self._engine, self._traffic).routes,
        ]

    async def models(self, request: Request) -> Response:
        del request
        return JsonResponse({"object": "list", "data": [self._model_object()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return JsonResponse(self._model_object())

    async def health(self, request: Request) -> Response:
        del request
        if self._traffic.draining:
            return JsonResponse({"status": "shutting down"}, status_code=503)
        healthy = self._engine.healthy()
        answer: Json = {"status": "ok" if healthy else "unhealthy"}
        barred = int(self._engine.stats().get("namespaces_quarantined", 0))
        if barred:  # it serves all the same, and computes what it does not believe
            answer["namespaces_quarantined"] = barred
        return JsonResponse(answer, status_code=200 if healthy else 503)

    async def metrics(self, request: Request) -> Response:
        del request
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def chat(self, request: Request) -> Response:
        body = await parse_body(request, ChatBody, self._traffic)
        return await self._answer(request, body, ChatShape())

    async def complete(self, request: Request) -> Response:
        body = await parse_body(request, CompletionBody, self._traffic)
        return await self._answer(request, body, CompletionShape())

    async def _answer(self, request: Request, body: CommonBody, shape: Shape) -> Response:
        """Checks, admits, encodes, submits, and hands what it holds on to the answer."""
        self._check_model(body.model)
        limits = check_limits(body, self._config)
        hint = session_hint(body, request.headers)
        id = f"{shape.id_prefix}-{secrets.token_hex(12)}"
        with ExitStack() as held:
            sequences = _prompt_count(body) * limits.n
            self._check_choices(sequences)
            ticket = held.enter_context(self._traffic.admit(sequences))
            prompts = await self._prompts(body, asked=limits.max_tokens)
            await pin_prompt(self._engine.cache, body, [tokens for tokens, _ in prompts])
            asked = requests_for(body, limits, prompts, id=id, hint=hint)
            job = Job(self._engine, asked, ticket)
            held.enter_context(job.running(self._traffic))
            answer = Answer(
                shape=shape,
                header=Header(id, int(time.time()), self._model),
                job=job,
                n=limits.n,
                wants_logprobs=limits.logprobs is not None,
                wants_usage=body.wants_usage,
            )
            if not body.stream:
                return await gather(answer, request.receive)
            return EventStream(answer, held.pop_all())

    async def _prompts(self, body: CommonBody, *, asked: int | None) -> list[tuple[Tokens, int]]:
        """Each prompt's tokens, and the room for its answer."""
        if isinstance(body, ChatBody):
            prompts, param = [await message_prompt(body.messages, self._engine.codec)], "messages"
        else:
            assert isinstance(body, CompletionBody), "there are two kinds of bodies"
            prompts = await completion_prompts(body.prompt, self._engine.codec, self._card)
            param = "prompt"
        context = self._card.context_tokens
        return [
            (tokens, room_for_answer(tokens, asked=asked, context=context, param=param))
            for tokens in prompts
        ]

    def _check_choices(self, sequences: int) -> None:
        if sequences > self._config.max_choices:
            raise RequestError(
                f"{sequences} choices over all prompts; the limit is {self._config.max_choices}",
                param="prompt",
                code="too_many_choices",
            )

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self._model:
            raise RequestError(
                "the model does not exist on this server",
                param="model",
                code="model_not_found",
                remedy=f"this server has {self._model}",
            )

    def _model_object(self) -> Json:
        return {
            "id": self._model,
            "object": "model",
            "created": self._created_s,
            "owned_by": "pagoda",
            "max_model_len": self._card.context_tokens,
        }


def _prompt_count(body: CommonBody) -> int:
    """How many prompts a body holds, before they are looked at closely."""
    prompt = body.prompt if isinstance(body, CompletionBody) else None
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return 1
    return len(prompt)
