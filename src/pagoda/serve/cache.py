"""The endpoints under /cache: what is cached, and what operators do with it.

They need the server's API key like all others. Each call waits for the engine's current step,
in a thread, so that answers to others do not wait with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pagoda.engine.api import CacheScope, Engine
from pagoda.serve.body import parse_body
from pagoda.serve.cache_schema import (
    ClearBody,
    DrainBody,
    LiftBody,
    PromptBody,
    TtlBody,
    prompt_of,
    scope_of_query,
)
from pagoda.serve.errors import JsonResponse
from pagoda.serve.pins import PinEndpoints
from pagoda.serve.schema import ResetBody
from pagoda.serve.traffic import Traffic

__all__ = ["CacheEndpoints"]

ACCEPTED = 202


class CacheEndpoints:
    """Handlers of one server; `routes` lists them."""

    def __init__(self, engine: Engine, traffic: Traffic) -> None:
        self._engine = engine
        self._cache = engine.cache
        self._traffic = traffic

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/cache", self.holdings, methods=["GET"]),
            Route("/cache/tiers", self.tiers, methods=["GET"]),
            Route("/cache/drain", self.drain, methods=["POST"]),
            Route("/cache/lookup", self.lookup, methods=["POST"]),
            Route("/cache/clear", self.clear, methods=["POST"]),
            Route("/cache/quarantine", self.quarantined, methods=["GET"]),
            Route("/cache/quarantine/lift", self.lift, methods=["POST"]),
            Route("/cache/ttl", self.ttls, methods=["GET"]),
            Route("/cache/ttl", self.set_ttl, methods=["POST"]),
            Route("/cache/prefetch", self.prefetches, methods=["GET"]),
            Route("/cache/prefetch", self.prefetch, methods=["POST"]),
            Route("/cache/reset", self.reset, methods=["POST"]),
            *PinEndpoints(self._engine, self._traffic).routes,
        ]

    async def holdings(self, request: Request) -> Response:
        query = dict(request.query_params)
        scope = scope_of_query(query)
        found = await asyncio.to_thread(self._cache.holdings, scope)
        tier = query.get("tier")
        lines = [asdict(one) for one in found if tier is None or one.tier == tier]
        return JsonResponse({"holdings": lines})

    async def tiers(self, request: Request) -> Response:
        del request
        found = await asyncio.to_thread(self._cache.tiers)
        return JsonResponse({"tiers": [asdict(one) for one in found]})

    async def drain(self, request: Request) -> Response:
        body = await parse_body(request, DrainBody, self._traffic)
        found = await asyncio.to_thread(self._cache.drain, body.tier)
        return JsonResponse(asdict(found))

    async def lookup(self, request: Request) -> Response:
        body = await parse_body(request, PromptBody, self._traffic)
        prompt = await prompt_of(body, self._engine)
        found = await asyncio.to_thread(self._cache.lookup, prompt, body.cache_salt or "")
        return JsonResponse(asdict(found))

    async def clear(self, request: Request) -> Response:
        body = await parse_body(request, ClearBody, self._traffic)
        prompt = await prompt_of(body, self._engine) if body.has_prompt else None
        clearing = await asyncio.to_thread(self._cache.clear, body.scope(prompt))
        cleared = await asyncio.wrap_future(clearing)
        return JsonResponse(asdict(cleared))

    async def quarantined(self, request: Request) -> Response:
        del request
        found = await asyncio.to_thread(self._cache.quarantined)
        return JsonResponse({"quarantined": [asdict(one) for one in found]})

    async def lift(self, request: Request) -> Response:
        body = await parse_body(request, LiftBody, self._traffic)
        lifted = await asyncio.to_thread(self._cache.lift, body.namespace)
        return JsonResponse(asdict(lifted))

    async def ttls(self, request: Request) -> Response:
        del request
        found = await asyncio.to_thread(self._cache.ttls)
        return JsonResponse({"ttls": [asdict(ttl) for ttl in found]})

    async def set_ttl(self, request: Request) -> Response:
        body = await parse_body(request, TtlBody, self._traffic)
        await asyncio.to_thread(
            self._cache.set_ttl, body.seconds, tenant=body.tenant, salt=body.cache_salt
        )
        return await self.ttls(request)

    async def prefetch(self, request: Request) -> Response:
        body = await parse_body(request, PromptBody, self._traffic)
        prompt = await prompt_of(body, self._engine)
        begun = await asyncio.to_thread(self._cache.prefetch, prompt, body.cache_salt or "")
        return JsonResponse(asdict(begun), status_code=ACCEPTED)

    async def prefetches(self, request: Request) -> Response:
        del request
        found = await asyncio.to_thread(self._cache.prefetches)
        return JsonResponse({"prefetches": [asdict(one) for one in found]})

    async def reset(self, request: Request) -> Response:
        body = await parse_body(request, ResetBody, self._traffic)
        released = await asyncio.to_thread(self._engine.reset_cache, CacheScope(body.scope))
        return JsonResponse({"released": released})
