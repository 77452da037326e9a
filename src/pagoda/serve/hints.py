"""What a request says of its session: that another turn will come, that none will, or that one
comes once a tool has answered.

It may say so in its body (`pagoda.session`, or `kv_transfer_params.pagoda_session` for clients
that already send those) or in a header. Policies learn how far it is right. Nothing is inferred:
this server calls no tools, and an answer that ends by itself says nothing of what comes.
"""

from __future__ import annotations

from starlette.datastructures import Headers

from pagoda.core.errors import RequestError
from pagoda.core.policy.port import Hint
from pagoda.serve.schema import SESSION_HINTS, CommonBody

__all__ = ["HEADER", "session_hint"]

HEADER = "X-Pagoda-Session"


def session_hint(body: CommonBody, headers: Headers) -> Hint:
    """The hint of a request, wherever it gives it. Raises RequestError for a header of another
    value, and for hints that contradict each other."""
    said = {_of_header(value) for value in headers.getlist(HEADER)}
    if body.pagoda is not None and body.pagoda.session is not None:
        said.add(body.pagoda.session)
    if body.kv_transfer_params is not None and body.kv_transfer_params.pagoda_session is not None:
        said.add(body.kv_transfer_params.pagoda_session)
    if len(said) > 1:
        raise RequestError(
            f"the request says that its session is {' and '.join(sorted(said))}",
            param="pagoda.session",
            code="invalid_value",
            remedy=f"say it once, in the body or in {HEADER}",
        )
    return Hint(said.pop()) if said else Hint.NONE


def _of_header(value: str) -> str:
    name = value.strip().lower()
    if name not in SESSION_HINTS:
        raise RequestError(
            f"{HEADER}: should be one of {', '.join(SESSION_HINTS)}", code="invalid_value"
        )
    return name
