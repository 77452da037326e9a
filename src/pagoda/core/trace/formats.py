"""Which format a trace has, told by one of its lines."""

from __future__ import annotations

import re
from collections.abc import Callable

from pagoda.core.trace.port import Codec, Malformed
from pagoda.core.trace.runs import Runs

Opened = Callable[[int | None], Codec]
FORMATS = "runs"
_RUNS = re.compile(r"\s*[0-9]+\s+[0-9]+\s+[0-9]+(\s+[0-9]+(\+[0-9]+)?)*\s*")


def detect(line: str, *, block_tokens: int | None = None) -> Codec:
    """The codec of the format that `line` is in; it has not taken the line yet.

    `block_tokens` is the size of the file's blocks if it is not the format's own. Raises
    Malformed for a line of no known format.
    """
    if _RUNS.fullmatch(line):
        return Runs(block_tokens or 512)
    raise Malformed(f"of no known format ({FORMATS})")
