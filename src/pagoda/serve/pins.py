"""The endpoints under /cache/pins, and the field of a request that pins its prompt.

They need the server's API key like all others. An owner's name is for accounting, and proves
nothing: whoever has the key can end every pin. Salts travel in bodies only, for URLs are logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pagoda.core.errors import RequestError
from pagoda.core.pins import PinWish
from pagoda.engine.api import Cache, Engine
from pagoda.serve.body import parse_body
from pagoda.serve.cache_schema import PromptBody, prompt_of
from pagoda.serve.errors import JsonResponse
from pagoda.serve.prompts import Tokens
from pagoda.serve.schema import CommonBody, PinField
from pagoda.serve.traffic import Traffic

__all__ = ["PinEndpoints", "pin_prompt"]

_WAIT_S = 5.0  # for a pin to be written down; drives that hang are not waited for


class PinBody(PromptBody, PinField):
    """POST /cache/pins: a prompt, and a pin as a request's field has it."""


class PinEndpoints:
    """Handlers of one server; `routes` lists them."""

    def __init__(self, engine: Engine, traffic: Traffic) -> None:
        self._engine = engine
        self._cache = engine.cache
        self._traffic = traffic

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/cache/pins", self.pins, methods=["GET"]),
            Route("/cache/pins", self.pin, methods=["POST"]),
            Route("/cache/pins", self.unpin_owner, methods=["DELETE"]),
            Route("/cache/pins/{id}", self.unpin, methods=["DELETE"]),
        ]

    async def pins(self, request: Request) -> Response:
        owner = _owner_of(request)
        found = await asyncio.to_thread(self._cache.pins)
        return JsonResponse({"pins": [asdict(one) for one in found if owner in (None, one.owner)]})

    async def pin(self, request: Request) -> Response:
        body = await parse_body(request, PinBody, self._traffic)
        prompt = await prompt_of(body, self._engine)
        pinned = await asyncio.to_thread(
            self._cache.pin, prompt, body.cache_salt or "", _wish(body), wait_s=_WAIT_S
        )
        return JsonResponse(asdict(pinned))

    async def unpin(self, request: Request) -> Response:
        id = request.path_params["id"]
        gone = await asyncio.to_thread(self._cache.unpin, id, owner=_owner_of(request))
        return JsonResponse({"unpinned": gone})

    async def unpin_owner(self, request: Request) -> Response:
        owner = _owner_of(request)
        if owner is None:
            raise RequestError(
                "say whose pins end", param="owner", code="invalid_value", remedy="add ?owner=NAME"
            )
        gone = await asyncio.to_thread(self._cache.unpin, None, owner=owner)
        return JsonResponse({"unpinned": gone})


async def pin_prompt(cache: Cache, body: CommonBody, prompts: Sequence[Tokens]) -> None:
    """Do what a request's `pagoda.pin` asks for, before its prompt is computed: its blocks are
    then pinned as they come. Raises RequestError; a request whose pin is refused is not run."""
    field = body.pagoda.pin if body.pagoda else None
    if field is None:
        return
    if len(prompts) != 1:
        raise RequestError("one prompt at a time is pinned", param="pagoda.pin")
    await asyncio.to_thread(cache.pin, prompts[0], body.cache_salt or "", _wish(field))


def _wish(field: PinField) -> PinWish:
    return PinWish(owner=field.owner, expires_s=field.expires_s, budget=field.budget)


def _owner_of(request: Request) -> str | None:
    for name in request.query_params:
        if name != "owner":
            raise RequestError(
                "there is no such query parameter", code="unknown_parameter", remedy="use owner"
            )
    return request.query_params.get("owner")
