"""The ASGI application: routes, guard, and errors in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from pagoda.core.errors import RequestError
from pagoda.engine.api import Engine
from pagoda.serve.config import ServeConfig
from pagoda.serve.endpoints import Endpoints
from pagoda.serve.errors import error_response
from pagoda.serve.guard import Guard
from pagoda.serve.traffic import Traffic

__all__ = ["create_app"]

CODE_OF_STATUS = {404: "not_found", 405: "method_not_allowed"}


def create_app(
    engine: Engine,
    config: ServeConfig,
    *,
    registry: CollectorRegistry | None = None,
    traffic: Traffic | None = None,
) -> Starlette:
    """The OpenAI-compatible application over `engine`.

    `/metrics` shows `registry`, to which the server's own counts are added; `traffic` lets a
    server that drains share the counts. The engine is neither started nor closed here.
    """
    traffic = traffic or Traffic(config)
    registry = registry or CollectorRegistry()
    registry.register(_TrafficCollector(traffic))
    app = Starlette(
        routes=Endpoints(engine, config, traffic, registry).routes,
        middleware=[Middleware(Guard, config, traffic)],
        exception_handlers={HTTPException: _http_fault},
    )
    app.router.redirect_slashes = False
    return app


async def _http_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for that type"
    code = CODE_OF_STATUS.get(error.status_code, "invalid_request")
    messages = {404: "there is no such path", 405: f"{request.method} is not allowed here"}
    message = messages.get(error.status_code, "the request is not valid")
    return error_response(RequestError(message, code=code), headers=error.headers)


class _TrafficCollector(Collector):
    """The server's own counts, read when they are asked for."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        traffic = self._traffic
        yield GaugeMetricFamily(
            "pagoda_http_waiting_sequences",
            "Sequences admitted that have no first token yet",
            value=traffic.waiting,
        )
        yield GaugeMetricFamily(
            "pagoda_http_running_requests",
            "Requests with sequences in the engine",
            value=traffic.running,
        )
        responses = CounterMetricFamily(
            "pagoda_http_responses", "Responses begun, by status", labels=["status"]
        )
        for status, count in sorted(traffic.responses.items()):
            responses.add_metric([str(status)], count)
        yield responses
