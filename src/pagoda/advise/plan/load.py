"""A load from a trace file: mean lengths, rate, and the share that an earlier request computed.

Two formats, plain or gzipped:

    JSON lines   input_length, output_length, timestamp (ms) and hash_ids, as Mooncake
                 publishes them; hash_ids name chained blocks of 512 tokens
    runs         dt_ms input_tokens output_tokens start+length ...
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagoda.advise.plan.facts import Load
from pagoda.core.errors import SettingsError

BLOCK_TOKENS = 512
_LONGEST_TOKENS = 1 << 30
"""A request beyond this is a broken line, not a load."""


@dataclass(frozen=True)
class Entry:
    """A request of a trace; `at_ms` None where the trace has no absolute time."""

    at_ms: float | None
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]


def load_trace(path: Path) -> Load:
    """Return the mean load of a trace. SettingsError for an unreadable or empty one."""
    try:
        entries = list(_entries(path))
    except (OSError, EOFError, ValueError, LookupError, TypeError, zlib.error) as error:
        raise SettingsError(
            f"{path} is not a trace this planner reads: {error}",
            key="trace",
            source=str(path),
            remedy="JSON lines with input_length and output_length, or a .runs file",
        ) from error
    if not any(entry.input_tokens for entry in entries):
        raise SettingsError(f"{path} holds no requests", key="trace", source=str(path))
    times = [e.at_ms for e in entries if e.at_ms is not None]
    span_s = (max(times) - min(times)) / 1000 if len(times) == len(entries) else 0.0
    return Load(
        input_tokens=sum(e.input_tokens for e in entries) / len(entries),
        output_tokens=max(1.0, sum(e.output_tokens for e in entries) / len(entries)),
        requests_per_s=len(entries) / span_s if span_s > 0 else None,
        shared_prefix=_shared_share(entries),
        source=str(path),
    )


def _shared_share(entries: list[Entry]) -> float:
    """Return the share of input tokens that an unlimited cache of earlier inputs would hold."""
    seen: set[int] = set()
    shared = total = 0
    for entry in entries:
        total += entry.input_tokens
        hit = 0
        for block in entry.blocks:
            if block not in seen:
                break
            hit += 1
        # at least one token is always computed
        shared += min(hit * BLOCK_TOKENS, max(entry.input_tokens - 1, 0))
        seen.update(entry.blocks)
    return shared / total if total else 0.0


def _entries(path: Path) -> Iterator[Entry]:
    opened = gzip.open if path.suffix == ".gz" else open
    clock = 0.0
    with opened(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if not line.strip():
                continue
            if line.lstrip().startswith("{"):
                yield _from_json(json.loads(line))
            else:
                entry = _from_runs(line.split(), clock)
                clock = entry.at_ms or 0.0
                yield entry


def _from_json(row: dict[str, object]) -> Entry:
    at, blocks = row.get("timestamp"), row.get("hash_ids") or ()
    if not isinstance(blocks, list | tuple):
        raise TypeError("hash_ids is not a list")
    return Entry(
        at_ms=float(at) if isinstance(at, int | float) else None,
        input_tokens=_tokens(str(row["input_length"])),
        output_tokens=_tokens(str(row["output_length"])),
        blocks=tuple(int(b) for b in blocks),
    )


def _from_runs(words: list[str], clock: float) -> Entry:
    dt_ms, tokens_in, tokens_out, *runs = words
    blocks: list[int] = []
    for run in runs:
        start, _, length = run.partition("+")
        count = _tokens(length or "1")
        if count * BLOCK_TOKENS > 2 * max(_tokens(tokens_in), BLOCK_TOKENS):
            raise ValueError(f"{count} blocks are more than the request's {tokens_in} tokens")
        blocks.extend(range(int(start), int(start) + count))
    return Entry(
        at_ms=clock + float(dt_ms),
        input_tokens=_tokens(tokens_in),
        output_tokens=_tokens(tokens_out),
        blocks=tuple(blocks),
    )


def _tokens(text: str) -> int:
    value = int(text)
    if not 0 <= value < _LONGEST_TOKENS:
        raise ValueError(f"{value} is no number of tokens")
    return value
