"""Hints against a model that looks at tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from replay_sample import sample, write_sample
from trace_lines import SIZE, Asked, conversations, runs_lines

from pagoda.core.policy import Hint
from pagoda.core.trace import Trace
from pagoda.core.trace.runs import Runs
from pagoda.lab.replay.files import read_trace
from pagoda.lab.replay.hints import alive, with_hints


def trace_of(requests: Sequence[Asked]) -> Trace:
    """The trace that these requests leave."""
    codec = Runs(block_tokens=SIZE)
    for line in runs_lines(requests):
        codec.take(line)
    return Trace(name="t", block_tokens=SIZE, requests=codec.requests())


def extended(requests: Sequence[Asked], at: int) -> bool:
    """Whether a later prompt has all whole blocks of this one, and more tokens."""
    prompt = requests[at].prompt
    head = prompt[: len(prompt) // SIZE * SIZE]
    return bool(head) and any(
        later.prompt[: len(head)] == head and len(later.prompt) > len(prompt)
        for later in requests[at + 1 :]
    )


BETWEEN = [Asked(at_ms=at, prompt=(0,) * count, answer=()) for at, count in enumerate((5, 4, 9))]


@given(conversations)
@example(BETWEEN)  # a shorter prompt between two that belong together
def test_alive_is_whose_prefix_a_later_prompt_extends(requests: list[Asked]) -> None:
    """As tokens say it, which the trace does not have."""
    requests = sorted(requests, key=lambda one: one.at_ms)
    expected = [extended(requests, at) for at in range(len(requests))]
    assert alive(trace_of(requests)) == expected


@given(conversations, st.integers(0, 9))
def test_an_oracle_that_is_always_right_or_never(requests: list[Asked], seed: int) -> None:
    """With a chance of 1 the hint is the truth, with 0 its opposite."""
    trace = trace_of(sorted(requests, key=lambda one: one.at_ms))
    truth = [Hint.ALIVE if one else Hint.CLOSED for one in alive(trace)]
    right = with_hints(trace, accuracy=1, seed=seed).requests
    wrong = with_hints(trace, accuracy=0, seed=seed).requests
    assert [one.hint for one in right] == truth
    assert all(one.hint != true for one, true in zip(wrong, truth, strict=True))


def test_a_seed_is_one_series_of_errors(tmp_path: Path) -> None:
    """The same seed errs at the same requests, another at others, as often as was said; nothing
    else of the trace changes."""
    trace = read_trace(
        write_sample(tmp_path / "t", runs_lines(sample(2000))), block_tokens=SIZE
    ).trace
    truth = [Hint.ALIVE if one else Hint.CLOSED for one in alive(trace)]
    first, again, other = (with_hints(trace, accuracy=0.8, seed=seed) for seed in (1, 1, 2))
    assert first.requests == again.requests != other.requests
    right = sum(one.hint == true for one, true in zip(first.requests, truth, strict=True))
    assert abs(right / len(truth) - 0.8) < 0.04
    assert [one.prompt for one in first.requests] == [one.prompt for one in trace.requests]
