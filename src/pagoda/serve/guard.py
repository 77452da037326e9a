"""What every request passes first: who asks, through which name, and that nothing leaks out."""

from __future__ import annotations

import hmac
import logging
import traceback

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagoda.core.errors import PagodaError, RequestError
from pagoda.serve.config import ServeConfig, is_loopback
from pagoda.serve.errors import error_response, refusal_of
from pagoda.serve.traffic import Traffic

__all__ = ["Guard"]

logger = logging.getLogger("pagoda.serve")

OPEN_PATHS = frozenset({"/health"})
WHILE_DRAINING = frozenset({"/health", "/metrics"})


class Guard:
    """The outermost ASGI layer. Refuses strangers, answers every failure in OpenAI's shape.

    An unexpected exception is logged by type and place only: its message may hold a prompt.
    """

    def __init__(self, app: ASGIApp, config: ServeConfig, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic
        self._key = None if config.api_key is None else config.api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _Watched(send, self._traffic)
        try:
            self._check(scope)
            await self._app(scope, receive, response)
        except ClientDisconnect:
            return  # nobody is left to be told
        except PagodaError as failure:
            await _answer(refusal_of(failure), scope, receive, response)
        except Exception as failure:  # noqa: BLE001 - the last line: one request, not the server
            _log(failure)
            fault = RequestError("the server failed to handle the request", code="internal_error")
            await _answer(fault, scope, receive, response)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._key is None:
            _check_host(headers.get("host", ""))
        elif scope["path"] not in OPEN_PATHS:
            self._check_key(headers.get("authorization", ""))
        if self._traffic.draining and scope["path"] not in WHILE_DRAINING:
            raise RequestError("the server is shutting down", code="unavailable")

    def _check_key(self, authorization: str) -> None:
        scheme, _, given = authorization.partition(" ")
        assert self._key is not None, "asked only when there is a key"
        # latin-1 is how header bytes became text, so it gives them back unchanged.
        same = hmac.compare_digest(given.strip().encode("latin-1"), self._key)
        if scheme.lower() != "bearer" or not same:
            raise RequestError(
                "a valid API key is needed",
                code="invalid_api_key",
                remedy="send it as 'Authorization: Bearer KEY'",
            )


def _check_host(host: str) -> None:
    """Without a key only local names are answered: a web page can point a name of its own at
    127.0.0.1, but it cannot change the Host header."""
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host
    name = name if name.startswith("[") else name.partition(":")[0]
    if host and not is_loopback(name):
        raise RequestError(
            "without an API key this server answers only to local names",
            code="host_not_allowed",
            remedy="use http://127.0.0.1, or start the server with an API key",
        )


class _Watched:
    """A send that knows whether the response has begun, and counts it."""

    def __init__(self, send: Send, traffic: Traffic) -> None:
        self._send = send
        self._traffic = traffic
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._traffic.responses[message["status"]] += 1
        await self._send(message)


async def _answer(fault: RequestError, scope: Scope, receive: Receive, send: _Watched) -> None:
    """The error, unless a response is under way: that one is broken off by returning."""
    if not send.started:
        await error_response(fault)(scope, receive, send)


def _log(failure: Exception) -> None:
    place = "".join(traceback.format_tb(failure.__traceback__))
    logger.error("a request failed with %s\n%s", type(failure).__name__, place)
