"""Traces of requests: what was asked, as chained ids of blocks, never as text."""

from __future__ import annotations

from pagoda.core.trace.formats import detect
from pagoda.core.trace.model import Trace, TraceRequest
from pagoda.core.trace.port import Codec, Malformed, Unreadable

__all__ = ["Codec", "Malformed", "Trace", "TraceRequest", "Unreadable", "detect"]
