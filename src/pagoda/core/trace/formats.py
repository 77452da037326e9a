"""Which format a trace has, told by one of its lines."""

from __future__ import annotations

import re

from pagoda.core.trace.agentic import Agentic
from pagoda.core.trace.fields import fields_of
from pagoda.core.trace.hash_ids import Bailian, Mooncake
from pagoda.core.trace.port import Codec, Malformed
from pagoda.core.trace.recorded import MARK, Recording
from pagoda.core.trace.runs import Runs

_RUNS = re.compile(r"[0-9]+\s+[0-9]+\s+[0-9]+(\s+[0-9]+(\+[0-9]+)?)*")


def detect(line: str, *, block_tokens: int | None = None) -> Codec:
    """The codec of the format that `line` is in; it has not taken the line yet.

    `block_tokens` is the size of the file's blocks if it is not the format's own; a recording
    says it itself. Raises Malformed for a line of no known format.
    """
    kind = _kind(line)
    if issubclass(kind, Recording):
        return kind()
    return kind(block_tokens) if block_tokens else kind()


def _kind(line: str) -> type[Runs | Mooncake | Bailian | Agentic | Recording]:
    if _RUNS.fullmatch(line):
        return Runs
    if not line.startswith("{"):
        raise Malformed("of no known format: neither .runs nor JSON objects")
    fields = fields_of(line).keys()
    if MARK in fields:
        return Recording
    if "hash_ids" in fields and "chat_id" in fields:
        return Bailian
    if "hash_ids" in fields and "session_id" in fields:
        return Agentic
    if "hash_ids" in fields and "timestamp" in fields:
        return Mooncake
    raise Malformed("of no known format: the fields are nobody's")
