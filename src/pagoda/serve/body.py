"""A request's body: read within limits, parsed without surprises."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.requests import ClientDisconnect, Request

from pagoda.core.errors import RequestError
from pagoda.serve.traffic import BodyBuffer, Traffic

__all__ = ["parse_body"]

Model = TypeVar("Model", bound=BaseModel)


async def parse_body(request: Request, model: type[Model], traffic: Traffic) -> Model:
    """The body as a `model`. Raises RequestError for anything but valid JSON of that shape,
    ClientDisconnect when the client leaves before the end of it."""
    _check_content_type(request)
    with traffic.buffering() as buffer:
        await _receive(request, buffer)
        parsed = _parse_json(buffer.data)
    if not isinstance(parsed, dict):
        raise RequestError("the body must be a JSON object", code="invalid_json")
    try:
        return model.model_validate(parsed)
    except ValidationError as refusal:
        raise _first_fault(refusal) from None


def _check_content_type(request: Request) -> None:
    """JSON must be declared: what a browser sends without asking first never is."""
    stated = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if stated != "application/json":
        raise RequestError(
            "the content type must be application/json", code="unsupported_media_type"
        )


async def _receive(request: Request, buffer: BodyBuffer) -> None:
    announced = request.headers.get("content-length", "")
    if announced.isdigit():
        buffer.expect(int(announced))
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        buffer.add(message.get("body", b""))
        if not message.get("more_body", False):
            return


def _parse_json(body: bytearray) -> object:
    """Strict JSON: UTF-8, no NaN or Infinity, bounded depth and digits."""
    try:
        return from_json(bytes(body), allow_inf_nan=False)
    except ValueError as fault:
        raise RequestError(f"the body is not valid JSON: {fault}", code="invalid_json") from None


def _first_fault(refusal: ValidationError) -> RequestError:
    """The first thing wrong, by name. The value itself is not repeated: it may be a prompt."""
    first = refusal.errors(include_url=False, include_context=False, include_input=False)[0]
    field = _field_path(first)
    return RequestError(
        f"{field or 'body'}: {first['msg']}", param=field or None, code="invalid_value"
    )


def _field_path(fault: ErrorDetails) -> str:
    """`messages[3].content` from pydantic's location; names of union branches are left out."""
    path = ""
    for part in fault["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in {"str", "int", "float"}:
            path += f".{part}" if path else part
    return path[:100]
