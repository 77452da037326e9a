"""The report of a replay: what `--json` writes, and what tables and pictures are made from.

Percents are of tokens of prompts; `seconds` and `us_per_access` are one processor's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pagoda.advise.plan.economics import SECONDS_A_DAY, Drive, DriveUse, drive_needs
from pagoda.core.trace import Trace
from pagoda.lab.replay.files import ReadTrace
from pagoda.lab.replay.one_tier import Hits
from pagoda.lab.replay.sweep import Replayed
from pagoda.lab.replay.two_tiers import Flow

BASE, BOUND = "lru", "belady"  # a gap is what lies between these two
Row = dict[str, Any]


def trace_part(read: ReadTrace) -> Row:
    """What was replayed, and which of its lines were not."""
    trace = read.trace
    return {
        "name": trace.name,
        "format": read.format,
        "block_tokens": trace.block_tokens,
        "requests": len(trace.requests),
        "input_tokens": trace.input_tokens(),
        "unique_blocks": trace.unique_blocks(),
        "span_s": round(span_s(trace), 3),
        "skipped_lines": read.bad_count,
        "skipped": [asdict(line) for line in read.bad],
    }


def span_s(trace: Trace) -> float:
    """From the first request to the last."""
    return trace.requests[-1].at_s - trace.requests[0].at_s


def row_of(place: Mapping[str, Any], replayed: Replayed[Hits]) -> Row:
    """A row of one tier; `place` says which policy and capacity."""
    hits = replayed.figures
    return {
        **place,
        "token_hit_pct": round(hits.token_hit_pct, 4),
        "gap_closed_pct": None,
        "hit_tokens": hits.hit_tokens,
        "block_accesses": hits.accesses,
        "inserted_blocks": hits.inserted,
        "evicted_blocks": hits.evicted,
        "seconds": round(replayed.seconds, 3),
        "us_per_access": round(replayed.seconds / max(1, hits.accesses) * 1e6, 3),
    }


def flow_row_of(
    place: Mapping[str, Any], replayed: Replayed[Flow], *, drive: Drive, span_s: float
) -> Row:
    """A row of two tiers; `drive` is the one that wears, `span_s` how long the trace lasts."""
    flow = replayed.figures
    return {
        **place,
        "rated_tb": drive.capacity_bytes / 1e12,
        "token_hit_pct": round(flow.token_hit_pct, 4),
        "host_hit_pct": round(flow.host_hit_pct, 4),
        "drive_hit_pct": round(flow.drive_hit_pct, 4),
        "mean_stall_ms": round(flow.mean_stall_s * 1e3, 3),
        "p99_stall_ms": round(flow.stall_s(0.99) * 1e3, 3),
        "mean_miss_ms": round(flow.mean_miss_s * 1e3, 3),
        "written_bytes": flow.written_bytes,
        "drive_life_years": life_years(flow.written_bytes, drive=drive, span_s=span_s),
        "seconds": round(replayed.seconds, 3),
    }


def rated(drive: Drive, tier_bytes: int) -> Drive:
    """The drive that wears under a tier: no smaller than the tier."""
    return replace(drive, capacity_bytes=max(drive.capacity_bytes, tier_bytes))


def life_years(written_bytes: int, *, drive: Drive, span_s: float) -> float | None:
    """How long a drive lasts that is written so much in every such span; None: for ever, or the
    trace has no times to tell."""
    if not written_bytes or span_s <= 0:
        return None
    day_bytes = written_bytes / span_s * SECONDS_A_DAY
    use = DriveUse(held_bytes=0, read_bytes_per_s=0, write_bytes_a_day=day_bytes)
    return round(drive_needs(drive, use, owned=1).life_years, 4)


def fill_gaps(rows: Sequence[Row]) -> None:
    """Say of each row which share of the gap between LRU and the bound it closes, where both
    were replayed at its capacity and differ."""
    hits = {(row["policy"], row["capacity"]): row["token_hit_pct"] for row in rows}
    for row in rows:
        base, bound = (hits.get((name, row["capacity"])) for name in (BASE, BOUND))
        if base is not None and bound is not None and bound > base:
            share = (row["token_hit_pct"] - base) / (bound - base)
            row["gap_closed_pct"] = round(100 * share, 2)


def distinct(rows: Iterable[Row], key: str) -> list[Any]:
    """The values of a column, each once, in their order."""
    return list(dict.fromkeys(row[key] for row in rows))


def label(row: Row) -> str:
    """What a row is about beside its sizes: the policy, and what is written to drives."""
    return f"{row['policy']}, {row['writes']}" if "writes" in row else str(row["policy"])
