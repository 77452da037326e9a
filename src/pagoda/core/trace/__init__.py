"""Traces of requests: what was asked, as chained ids of blocks, never as text."""

from __future__ import annotations

from pagoda.core.trace.model import Trace, TraceRequest

__all__ = ["Trace", "TraceRequest"]
