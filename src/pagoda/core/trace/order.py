"""The order that a trace is replayed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pagoda.core.trace.model import TraceRequest


def by_arrival(requests: Iterable[TraceRequest]) -> list[TraceRequest]:
    """In order of arrival, the first one at 0 s; those of the same moment stay as they are."""
    ordered = sorted(requests, key=lambda request: request.at_s)
    start_s = ordered[0].at_s if ordered else 0.0
    if start_s == 0.0:
        return ordered
    return [replace(request, at_s=request.at_s - start_s) for request in ordered]
