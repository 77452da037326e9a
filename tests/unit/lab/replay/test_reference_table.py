"""The simulator and its policies agree with the table that stands beside the public traces."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from pagoda.core.trace import Trace
from pagoda.lab.replay.files import read_trace
from pagoda.lab.replay.one_tier import OneTier
from pagoda.lab.replay.policies import make_policy

# Token hits in percent, by capacity in percent of a trace's unique blocks. Of the table's cells
# these take a few seconds each; all of them were compared when the policies were written.
CONVERSATION = [
    ("lru", 1, 5.7),
    ("lru", 10, 28.9),
    ("arc", 2, 9.5),
    ("s3-fifo", 1, 8.2),
    ("lru-2", 2, 15.1),
    ("ema", 1, 11.4),
    ("ema-literal", 2, 8.2),
    ("belady", 1, 25.7),
]
WHOLE_NUMBERS = [  # the table rounds these to whole points
    ("synthetic_trace.runs.gz", "lru", 5, 16),
    ("synthetic_trace.runs.gz", "belady", 5, 40),
    ("agentic_aiperf_300s_seed42.jsonl.gz", "lru", 2, 52),
]
NEAR = 0.3  # points


@pytest.mark.parametrize(("policy", "capacity_pct", "hit_pct"), CONVERSATION)
def test_conversation(policy: str, capacity_pct: int, hit_pct: float) -> None:
    """Production traffic, within 0.3 points."""
    found = _hit_pct(_trace("conversation_trace.runs.gz"), policy, capacity_pct)
    assert abs(found - hit_pct) <= NEAR


@pytest.mark.parametrize(("name", "policy", "capacity_pct", "hit_pct"), WHOLE_NUMBERS)
def test_other_traces(name: str, policy: str, capacity_pct: int, hit_pct: int) -> None:
    """Within 0.3 points of what rounds to the table's whole number."""
    found = _hit_pct(_trace(name), policy, capacity_pct)
    assert abs(found - hit_pct) <= 0.5 + NEAR


def _hit_pct(trace: Trace, policy: str, capacity_pct: int) -> float:
    slots = trace.unique_blocks() * capacity_pct // 100
    tier = OneTier(
        make_policy(policy, slots, trace), capacity=slots, block_tokens=trace.block_tokens
    )
    for request in trace.requests:
        tier.replay(request)
    return tier.hits.token_hit_pct


@cache
def _trace(name: str) -> Trace:
    beside = Path(__file__).resolve().parents[4].parent / "shared"
    path = Path(os.environ.get("PAGODA_SHARED", beside)) / "data" / "traces" / name
    if not path.is_file():
        pytest.skip("public traces: not beside the checkout, nor in PAGODA_SHARED")
    return read_trace(path).trace
