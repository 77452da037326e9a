"""Conversations with known tokens, and their lines in every format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

SIZE = 4  # tokens a block


@dataclass(frozen=True)
class Asked:
    """A request whose tokens are known: what no trace tells."""

    at_ms: int
    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    def blocks(self) -> list[tuple[int, ...]]:
        """The prompt cut into blocks, the last of which may be partly filled."""
        return [self.prompt[at : at + SIZE] for at in range(0, len(self.prompt), SIZE)]

    def prefixes(self) -> list[tuple[int, ...]]:
        """What each of these blocks stands for once it is chained."""
        return [self.prompt[: at + SIZE] for at in range(0, len(self.prompt), SIZE)]


tokens = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple)
asked = st.builds(
    Asked,
    at_ms=st.integers(0, 9),
    prompt=tokens,
    answer=st.lists(st.integers(0, 1), max_size=9).map(tuple),
)
conversations = st.lists(asked, min_size=1, max_size=8)


def runs_lines(requests: Sequence[Asked]) -> list[str]:
    """As `.runs`, with consecutive ids written as runs; requests are in order of arrival."""
    lines, before_ms = [], 0
    for request, ids in zip(requests, _ids(requests, chained=True), strict=True):
        words = [request.at_ms - before_ms, len(request.prompt), len(request.answer), *_runs(ids)]
        lines.append(" ".join(map(str, words)))
        before_ms = request.at_ms
    return lines


def json_lines(requests: Sequence[Asked], *, bailian: bool = False) -> list[str]:
    """As Mooncake's JSON, or Bailian's, whose ids name blocks by content alone."""
    return [
        json.dumps(
            {
                "timestamp": request.at_ms / 1000 if bailian else request.at_ms,
                "input_length": len(request.prompt),
                "output_length": len(request.answer),
                "hash_ids": ids,
                **({"chat_id": 1, "parent_chat_id": -1} if bailian else {}),
            }
        )
        for request, ids in zip(requests, _ids(requests, chained=not bailian), strict=True)
    ]


def _ids(requests: Sequence[Asked], *, chained: bool) -> list[list[int]]:
    known: dict[tuple[int, ...], int] = {}
    return [
        [
            known.setdefault(what, 7 + len(known))
            for what in (request.prefixes() if chained else request.blocks())
        ]
        for request in requests
    ]


def _runs(ids: list[int]) -> list[str]:
    spans: list[list[int]] = []
    for each in ids:
        if spans and sum(spans[-1]) == each:
            spans[-1][1] += 1
        else:
            spans.append([each, 1])
    return [f"{start}+{length}" if length > 1 else str(start) for start, length in spans]
