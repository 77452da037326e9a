"""Codecs: every format tells the same of the same conversations, and refuses what it is not."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_lines import SIZE, Asked, conversations, json_lines, runs_lines

from pagoda.core.trace import Codec, Malformed, TraceRequest, Unreadable, chains, detect
from pagoda.core.trace.agentic import Agentic
from pagoda.core.trace.hash_ids import Bailian, Mooncake
from pagoda.core.trace.recorded import Recording
from pagoda.core.trace.runs import Runs

MOONCAKE = {"timestamp": 5, "input_length": 9, "output_length": 2, "hash_ids": [0, 1, 2]}
BAILIAN = MOONCAKE | {"chat_id": 3, "parent_chat_id": -1, "type": "text", "turn": 1}
AGENTIC = MOONCAKE | {"session_id": "s", "delay": 3, "is_restart": True}
RECORDED = {"at_s": 1.5, "input": 9, "output": 8, "prompt": "0" * 32, "generated": "1" * 16}


def take_all(codec: Codec, lines: Sequence[str]) -> list[TraceRequest]:
    """What a codec makes of lines."""
    for line in lines:
        codec.take(line)
    return codec.requests()


def read(lines: Sequence[str]) -> list[TraceRequest]:
    """What the codec that the first line asks for makes of lines."""
    return take_all(detect(lines[0], block_tokens=SIZE), lines)


def check(requests: list[TraceRequest], expected: list[Asked]) -> None:
    """Times, lengths, and ids that are equal where prefixes are, and nowhere else."""
    start_ms = expected[0].at_ms
    prefix_of: dict[int, tuple[int, ...]] = {}
    id_of: dict[tuple[int, ...], int] = {}
    for request, asked in zip(requests, expected, strict=True):
        assert request.at_s == pytest.approx((asked.at_ms - start_ms) / 1000)
        assert (request.input_tokens, request.output_tokens) == (
            len(asked.prompt),
            len(asked.answer),
        )
        assert len(request.prompt) == len(asked.prefixes())
        for block, prefix in zip(request.prompt, asked.prefixes(), strict=True):
            assert prefix_of.setdefault(block, prefix) == prefix
            assert id_of.setdefault(prefix, block) == block


@given(conversations)
def test_all_formats_tell_the_same(requests: list[Asked]) -> None:
    """A conversation comes out of each format with chained ids, in order of arrival, whatever
    the order of its lines; those of one moment in the order of their lines."""
    ordered = sorted(requests, key=lambda asked: asked.at_ms)
    check(read(json_lines(requests)), ordered)
    check(read(json_lines(requests, bailian=True)), ordered)
    from_zero = [Asked(a.at_ms - ordered[0].at_ms, a.prompt, a.answer) for a in ordered]
    check(read(runs_lines(from_zero)), from_zero)


@given(conversations)
def test_all_formats_infer_the_same_answers(requests: list[Asked]) -> None:
    """Blocks of answers are the same in all formats, up to their numbers."""
    ordered = sorted(requests, key=lambda asked: asked.at_ms)
    written = [json_lines(ordered), json_lines(ordered, bailian=True), runs_lines(ordered)]
    chains = [[r.whole(SIZE) for r in read(lines)] for lines in written]
    for other in chains[1:]:
        there = dict(zip(sum(chains[0], ()), sum(other, ()), strict=True))
        assert [tuple(there[block] for block in chain) for chain in chains[0]] == other


def test_a_last_block_that_is_not_whole_may_be_left_out() -> None:
    """Some writers name whole blocks only: nine tokens are two blocks of four, or three."""
    short = json.dumps(MOONCAKE | {"hash_ids": [0, 1]})
    (request,) = read([short])
    assert request.prompt == (0, 1)


def test_a_format_is_told_by_its_fields() -> None:
    """Each format has the block size and the unit of time that it is published with."""
    lines = {
        "0 600 3 0+2": (Runs, 512),
        json.dumps(MOONCAKE): (Mooncake, 512),
        json.dumps(BAILIAN): (Bailian, 16),
        json.dumps(MOONCAKE | {"session_id": "s"}): (Agentic, 512),
        '{"pagoda_trace": 1, "block_tokens": 32}': (Recording, 0),
    }
    for line, (kind, block_tokens) in lines.items():
        codec = detect(line)
        assert type(codec) is kind
        assert codec.block_tokens == block_tokens


@pytest.mark.parametrize(
    "line",
    ["hello", "1 2", "[1, 2]", '{"a": 1}', '{"hash_ids": []}', "{", "0 1 1 a", "\x00", "1 2 3 4+"],
)
def test_an_unknown_format_is_refused(line: str) -> None:
    """What no format writes is not taken for one."""
    with pytest.raises(Malformed, match=r"no known format|no JSON"):
        detect(line)


BAD_RUNS = {
    "0 600": "are due",
    "-1 600 1 0+2": "dt_ms",
    "1.5 600 1 0+2": "dt_ms",
    "99999999999999999 600 1 0+2": "dt_ms",
    "0 0 1": "input_tokens",
    "0 4194304 1 0+8192": "input_tokens",
    "0 600 9999999 0+2": "output_tokens",
    "0 600 1 0+3": "2 blocks of 512",
    "0 1600 1 0+2": "4 blocks of 512",
    "0 600 1 0+-2": "a run is",
    "0 600 1 0+0 1+2": "length",
    "0 600 1 0+99999999999999999999": "length",
    "0 600 1 18446744073709551615+2": "last id",
    "0 600 1 ٣+2": "a run is",
}


@pytest.mark.parametrize("line", BAD_RUNS)
def test_bad_runs_are_named(line: str) -> None:
    """A line of `.runs` that is wrong is told what is wrong."""
    with pytest.raises(Malformed, match=BAD_RUNS[line]):
        Runs().take(line)


BAD_FIELDS: list[tuple[dict[str, object], str]] = [
    ({"timestamp": None}, "timestamp"),
    ({"timestamp": -1}, "timestamp"),
    ({"timestamp": "5"}, "timestamp"),
    ({"timestamp": True}, "timestamp"),
    ({"timestamp": 1e300}, "timestamp"),
    ({"timestamp": 10**400}, "timestamp"),
    ({"input_length": 0}, "input_length"),
    ({"input_length": 9.5}, "input_length"),
    ({"input_length": 1 << 22}, "input_length"),
    ({"input_length": 10**400}, "input_length"),
    ({"output_length": -1}, "output_length"),
    ({"hash_ids": None}, "hash_ids"),
    ({"hash_ids": {"0": 1}}, "hash_ids"),
    ({"hash_ids": [0, 1, 2, 3]}, "3 blocks of 4"),
    ({"hash_ids": [0]}, "3 blocks of 4"),
    ({"hash_ids": [0, 1, -2]}, "hash_ids"),
    ({"hash_ids": [0, 1, 1 << 64]}, "hash_ids"),
    ({"hash_ids": [0, 1, "2"]}, "hash_ids"),
    ({"hash_ids": [0, 1, False]}, "hash_ids"),
]


@pytest.mark.parametrize(("change", "what"), BAD_FIELDS)
@pytest.mark.parametrize("kind", [Mooncake, Bailian])
def test_bad_fields_are_named(
    kind: type[Mooncake | Bailian], change: dict[str, object], what: str
) -> None:
    """A field that is wrong, or that is not there, is named."""
    codec = kind(SIZE)
    with pytest.raises(Malformed, match=what):
        codec.take(json.dumps(MOONCAKE | change))
    assert codec.requests() == []


@pytest.mark.parametrize(
    "line", ["", "nonsense", "[]", "{}", "NaN", '{"timestamp": NaN}', "[" * 100_000, "1" * 5000]
)
def test_what_is_no_object_is_refused(line: str) -> None:
    """Neither nesting without end nor a number without end is more than a bad line."""
    with pytest.raises(Malformed):
        Mooncake().take(line)


words = st.one_of(
    st.integers(-3, 40).map(str),
    st.sampled_from(["0+2", "1+1", "9" * 30, "+", "-0", "1e9", "0x1", "٣", "\x1c", "{", "NaN"]),
    st.text(max_size=4),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)
objects = st.one_of(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys([*AGENTIC, *BAILIAN, *RECORDED, "hint"], values)
    ),
    st.builds(lambda change, name: BAILIAN | {name: change}, values, st.sampled_from([*BAILIAN])),
    st.builds(lambda change, name: AGENTIC | {name: change}, values, st.sampled_from([*AGENTIC])),
    st.builds(lambda change, name: RECORDED | {name: change}, values, st.sampled_from([*RECORDED])),
)
lines = st.one_of(
    st.text(max_size=60), st.lists(words, max_size=6).map(" ".join), objects.map(json.dumps)
)


@given(st.lists(lines, max_size=6))
def test_any_line_gives_requests_or_a_named_fault(mixed: list[str]) -> None:
    """No line makes a codec fail otherwise; a refused one has changed nothing."""
    begun = Recording()
    begun.take('{"pagoda_trace": 1, "block_tokens": 4}')
    codecs: list[Codec] = [Runs(4), Mooncake(4), Bailian(4), Agentic(4), begun]
    taken = [0] * len(codecs)
    for line in mixed:
        for i, codec in enumerate(codecs):
            try:
                codec.take(line)
            except Malformed:
                continue
            taken[i] += 1
    for count, codec in zip(taken, codecs, strict=True):
        requests = codec.requests()
        assert len(requests) == count
        for request in requests:
            tokens = request.input_tokens + request.output_tokens
            assert len(request.whole(4)) <= tokens // 4
            chain = set(request.prompt + request.generated)
            assert len(chain) == len(request.prompt) + len(request.generated)


def _refusal(line: str) -> str | None:
    """Why a line is refused; None where it is not."""
    try:
        detect(line).take(line)
    except (Malformed, Unreadable) as refusal:
        return str(refusal)
    return None


@given(lines)
def test_detecting_refuses_or_finds(line: str) -> None:
    """Detection has no other fault either, nor has the codec on that line: it refuses it with a
    reason."""
    assert _refusal(line) != "", "a refusal says why"


@pytest.mark.parametrize(
    ("codec", "header", "line"),
    [
        (Runs(4), [], "5 9 2 0+3"),
        (Mooncake(4), [], json.dumps(MOONCAKE)),
        (Bailian(4), [], json.dumps(BAILIAN)),
        (Recording(), ['{"pagoda_trace": 1, "block_tokens": 4}'], json.dumps(RECORDED)),
    ],
)
def test_requests_together_have_a_limit(
    monkeypatch: pytest.MonkeyPatch, codec: Codec, header: list[str], line: str
) -> None:
    """A compressed file, or long answers, cannot ask for memory without end."""
    monkeypatch.setattr(chains, "BLOCKS", 8)
    for each in (*header, line, line):
        codec.take(each)
    with pytest.raises(Malformed, match="all requests together"):
        codec.take(line)
    assert len(codec.requests()) == 2
