"""Sessions of agents: contexts that grow turn by turn, at times that follow from the turns."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.trace import Malformed, TraceRequest, agentic, chains
from pagoda.core.trace.agentic import APART_S, TOKENS_PER_SECOND, Agentic

SIZE = 4
Turn = tuple[int, int, int, list[int]]  # delay in ms, input, output, ids

turns = st.builds(
    lambda delay, tokens, output, ids: (delay, tokens, output, ids[: -(-tokens // SIZE)]),
    st.integers(0, 3000),
    st.integers(1, 9),
    st.integers(0, 9),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
)
sessions = st.lists(st.lists(turns, min_size=1, max_size=4), min_size=1, max_size=4)


def line(name: str, turn: Turn, **more: object) -> str:
    """A turn's line; `more` has its moment, too, if it is a session's first."""
    delay, tokens, output, ids = turn
    fields = {"session_id": name, "input_length": tokens, "output_length": output, "hash_ids": ids}
    return json.dumps(fields | ({} if "timestamp" in more else {"delay": delay}) | more)


def read(lines: list[str]) -> list[TraceRequest]:
    """What the codec makes of lines."""
    codec = Agentic(SIZE)
    for each in lines:
        codec.take(each)
    return codec.requests()


def lines_of(session: list[Turn], name: str, **more: object) -> list[str]:
    """A session's lines."""
    return [line(name, session[0], timestamp=0, **more), *(line(name, t) for t in session[1:])]


@given(sessions)
def test_a_context_grows_turn_by_turn(made: list[list[Turn]]) -> None:
    """A prompt has the blocks of all turns so far; equal ids mean equal contexts up to there.
    Sessions begin APART_S apart, turns when the answer before has ended and the delay is over."""
    expected: list[tuple[float, list[int], Turn]] = []
    for number, session in enumerate(made):
        at_s, context = number * APART_S, list[int]()
        for place, turn in enumerate(session):
            at_s += turn[0] / 1000 if place else 0.0
            context = context + turn[3]
            expected.append((at_s, context, turn))
            at_s += turn[2] / TOKENS_PER_SECOND
    expected.sort(key=lambda one: one[0])
    lines = [each for i, session in enumerate(made) for each in lines_of(session, f"s{i}")]
    context_of: dict[int, list[int]] = {}
    id_of: dict[tuple[int, ...], int] = {}
    answers: list[int] = []
    for request, (at_s, context, turn) in zip(read(lines), expected, strict=True):
        unfilled = len(turn[3]) * SIZE - turn[1]
        assert request.at_s == pytest.approx(at_s)
        assert request.input_tokens == len(context) * SIZE - unfilled
        assert request.output_tokens == turn[2]
        assert len(request.prompt) == len(context)
        for depth, block in enumerate(request.prompt):
            before = context[: depth + 1]
            assert context_of.setdefault(block, before) == before
            assert id_of.setdefault(tuple(before), block) == block
        end = (request.input_tokens + turn[2]) // SIZE
        assert len(request.generated) == end - request.input_tokens // SIZE
        answers += request.generated
    assert len(set(answers)) == len(answers)
    assert context_of.keys().isdisjoint(answers)


def test_sessions_may_alternate() -> None:
    """A turn belongs to its session wherever its line stands."""
    one, two = [(0, 4, 50, [1]), (500, 4, 0, [2])], [(0, 4, 0, [7]), (0, 4, 0, [8])]
    first, second = lines_of(one, "one"), lines_of(two, "two")
    mixed = read([first[0], second[0], second[1], first[1]])
    assert mixed == read([*first, *second])


def test_a_restarted_session_follows_the_one_it_repeats() -> None:
    """It begins when that one's last answer has ended, and takes no place among the others."""
    worker = [(0, 4, 100, [1]), (3000, 4, 50, [2])]  # 2 s, a pause of 3 s, 1 s
    restart = [(0, 12, 0, [1, 2, 3])]
    lines = [
        *lines_of(worker, "worker"),
        *lines_of(restart, "restart", is_restart=True),
        *lines_of([(0, 4, 0, [9])], "other"),
    ]
    requests = read(lines)
    assert [(r.at_s, len(r.prompt)) for r in requests] == [(0, 1), (5, 2), (6, 3), (APART_S, 1)]
    assert requests[2].prompt[:2] == requests[1].prompt
    alone = read(lines_of(restart, "restart", is_restart=True))
    assert [r.at_s for r in alone] == [0]


def test_moments_that_are_told_count() -> None:
    """Nothing is assumed of sessions whose timestamps differ."""
    one = [line("one", (0, 4, 0, [1]), timestamp=5000)]
    two = [line("two", (0, 4, 0, [2]), timestamp=2000)]
    assert [(r.at_s, r.prompt) for r in read(one + two)] == [(0, (1,)), (3, (0,))]


GOOD: dict[str, object] = {
    "session_id": "s",
    "input_length": 5,
    "output_length": 1,
    "hash_ids": [1, 2],
    "delay": 5,
}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"session_id": 3}, "session_id"),
        ({"delay": None}, "delay"),
        ({"delay": -1}, "delay"),
        ({"input_length": 0}, "input_length"),
        ({"output_length": "1"}, "output_length"),
        ({"hash_ids": [1]}, "2 blocks of 4"),
        ({"hash_ids": [1, 2, 3]}, "2 blocks of 4"),
        ({"session_id": "new"}, "timestamp"),
    ],
)
def test_bad_fields_are_named(change: dict[str, object], what: str) -> None:
    """A field that is wrong, or that is not there, is named, and changes nothing."""
    codec = Agentic(SIZE)
    codec.take(line("s", (0, 4, 0, [1]), timestamp=0))
    with pytest.raises(Malformed, match=what):
        codec.take(json.dumps(GOOD | change))
    assert len(codec.requests()) == 1


def test_contexts_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short file cannot ask for memory without end: neither one context, nor all together."""
    monkeypatch.setattr(agentic, "TOKENS", 5 * SIZE)
    monkeypatch.setattr(chains, "BLOCKS", 12)
    codec = Agentic(SIZE)
    for name in ("a", "b"):
        codec.take(line(name, (0, 4, 0, [1]), timestamp=0))
        codec.take(line(name, (0, 4, 0, [1])))
        codec.take(line(name, (0, 4, 0, [1])))
    with pytest.raises(Malformed, match="all requests together"):
        codec.take(line("a", (0, 4, 0, [1])))
    with pytest.raises(Malformed, match="the session's context"):
        codec.take(line("a", (0, 8, 0, [1, 1])))
