"""Every failure as the error object that OpenAI's clients know.

A RequestError's code decides the status; whatever has no code here is a plain 400.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response

from pagoda.core.errors import EngineBusy, EngineClosed, PagodaError, RequestError

__all__ = ["JsonResponse", "dump", "error_body", "error_response", "refusal_of"]

STATUS_OF_CODE = {
    "invalid_api_key": 401,
    "host_not_allowed": 403,
    "not_found": 404,
    "model_not_found": 404,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "rate_limit_exceeded": 429,
    "engine_failed": 500,
    "not_cleared": 500,
    "internal_error": 500,
    "engine_busy": 503,
    "unavailable": 503,
}
TYPE_OF_STATUS = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
HEADERS_OF_STATUS = {
    401: {"www-authenticate": "Bearer"},
    429: {"retry-after": "1"},
    503: {"retry-after": "5"},
}


def dump(value: object) -> bytes:
    """Compact JSON in ASCII: some line readers split an event stream at U+2028 or U+0085."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


class JsonResponse(Response):
    """A JSON answer; unlike Starlette's it refuses NaN and writes ASCII."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return dump(content)


def refusal_of(error: PagodaError) -> RequestError:
    """Any error of ours as one with a code; only RequestErrors may show their message,
    and an engine that is busy says so."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, EngineBusy):
        return RequestError(error.message, code="engine_busy", remedy=error.remedy)
    if isinstance(error, EngineClosed):
        return RequestError("the server is shutting down or has failed", code="unavailable")
    return RequestError("the server failed to handle the request", code="internal_error")


def error_body(error: RequestError) -> dict[str, object]:
    """OpenAI's error object."""
    status = STATUS_OF_CODE.get(error.code, 400)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": str(error),
            "type": TYPE_OF_STATUS.get(status, kind),
            "param": error.param,
            "code": error.code,
        }
    }


def error_response(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that is refused or failed."""
    status = STATUS_OF_CODE.get(error.code, 400)
    extra = {**HEADERS_OF_STATUS.get(status, {}), **(headers or {})}
    return JsonResponse(error_body(error), status_code=status, headers=extra)
