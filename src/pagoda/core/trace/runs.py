"""The `.runs` format: a line a request, block ids as runs.

`dt_ms input_tokens output_tokens run…`: milliseconds since the request before, and the prompt's
blocks of 512 tokens as `start+length` of consecutive ids, or `start` alone for one. Ids are
chained: equal ids mean equal prefixes up to and with that block.
"""

from __future__ import annotations

import re

from pagoda.core.trace.chains import Chains
from pagoda.core.trace.fields import (
    answer_tokens,
    check_count,
    prompt_tokens,
    seconds,
    shown,
    whole,
)
from pagoda.core.trace.generated import with_generated
from pagoda.core.trace.model import TraceRequest
from pagoda.core.trace.port import NAMES, Malformed

_DIGITS = 20  # of the longest number below NAMES
_RUN = re.compile(rf"([0-9]{{1,{_DIGITS}}})(?:\+([0-9]{{1,{_DIGITS}}}))?")
_NUMBER = re.compile(rf"[0-9]{{1,{_DIGITS}}}")


class Runs:
    """Reads `.runs`."""

    format = "runs"

    def __init__(self, block_tokens: int = 512) -> None:
        self.block_tokens = block_tokens
        self._chains = Chains()
        self._requests: list[TraceRequest] = []
        self._at_s = 0.0

    def take(self, line: str) -> None:
        head, runs = line.split()[:3], line.split()[3:]
        if len(head) < 3:
            raise Malformed("dt_ms input_tokens output_tokens run… are due")
        dt_s = seconds(_number(head[0], "dt_ms"), "dt_ms", per_second=1000)
        tokens = prompt_tokens(_number(head[1], "input_tokens"), "input_tokens")
        answer = answer_tokens(_number(head[2], "output_tokens"), "output_tokens")
        spans = [_span(run) for run in runs]
        check_count(sum(map(len, spans)), tokens=tokens, block_tokens=self.block_tokens)
        self._chains.count(-(-(tokens + answer) // self.block_tokens))
        self._at_s += dt_s
        self._requests.append(
            TraceRequest(
                at_s=self._at_s,
                input_tokens=tokens,
                output_tokens=answer,
                prompt=self._chains.number(id_ for span in spans for id_ in span),
            )
        )

    def requests(self) -> list[TraceRequest]:
        return with_generated(self._requests, block_tokens=self.block_tokens, chains=self._chains)


def _number(text: str, name: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise Malformed(f"{name} is no whole number: {shown(text)}")
    return int(text)


def _span(run: str) -> range:
    match = _RUN.fullmatch(run)
    if not match:
        raise Malformed(f"a run is start+length or start, not {shown(run)}")
    start = whole(int(match[1]), "a run's start")
    # A range has no length above what a machine word holds.
    length = whole(int(match[2] or 1), "a run's length", least=1, below=NAMES >> 2)
    whole(start + length - 1, "a run's last id")
    return range(start, start + length)
