"""Recordings: what is written comes back, and tells nothing of keys."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.identity import Key, NamespaceId, chain
from pagoda.core.policy.port import Hint
from pagoda.core.trace import Malformed, TraceRequest, Unreadable
from pagoda.core.trace.recorded import RecordedRequest, Recording, RecordingLines

SIZE = 4
SALT = bytes(range(32))
HEADER = '{"pagoda_trace": 1, "block_tokens": 4}'


def keys_of(tokens: list[int]) -> list[Key]:
    """Keys of whole blocks."""
    return chain(NamespaceId(bytes(32)), tokens, block_tokens=SIZE)


@st.composite
def recorded(draw: st.DrawFn) -> RecordedRequest:
    """A request of few different tokens; its end may not be computed."""
    tokens = draw(st.lists(st.integers(0, 1), min_size=1, max_size=24))
    prompt = draw(st.integers(1, len(tokens)))
    computed = draw(st.integers(prompt // SIZE, len(tokens) // SIZE))
    return RecordedRequest(
        at_s=draw(st.integers(0, 9)) / 4,
        input_tokens=prompt,
        output_tokens=len(tokens) - prompt,
        keys=keys_of(tokens)[:computed],
        hint=draw(st.sampled_from(Hint)),
        end="stop",
    )


def written(requests: list[RecordedRequest], *, salt: bytes = SALT) -> list[str]:
    """A recording's lines."""
    lines = RecordingLines(salt=salt, block_tokens=SIZE)
    return [lines.header(), *map(lines.line, requests)]


def read(lines: list[str]) -> list[TraceRequest]:
    """What a recording tells."""
    codec = Recording()
    for line in lines:
        codec.take(line)
    assert codec.block_tokens == SIZE
    return codec.requests()


@given(st.lists(recorded(), max_size=8))
def test_a_recording_tells_what_was_asked(requests: list[RecordedRequest]) -> None:
    """Everything comes back in order of arrival, with ids that are equal where keys are."""
    ordered = sorted(requests, key=lambda request: request.at_s)
    id_of: dict[Key, int] = {}
    for back, request in zip(read(written(requests)), ordered, strict=True):
        assert back.at_s == request.at_s - ordered[0].at_s
        assert (back.input_tokens, back.output_tokens) == (
            request.input_tokens,
            request.output_tokens,
        )
        assert back.hint is request.hint
        assert len(back.prompt) == request.input_tokens // SIZE
        for key, block in zip(request.keys, back.prompt + back.generated, strict=True):
            assert id_of.setdefault(key, block) == block
    assert len(set(id_of.values())) == len(id_of)


@given(st.lists(recorded(), min_size=1, max_size=4))
def test_names_tell_nothing_without_the_salt(requests: list[RecordedRequest]) -> None:
    """No key is in a recording, not even in part; another salt gives other names."""
    text = "\n".join(written(requests))
    others = json.loads(written(requests, salt=bytes(32))[-1])
    for request in requests:
        for key in request.keys:
            assert key.hex()[:16] not in text
    names = json.loads(text.splitlines()[-1])["prompt"]
    assert names == "" or names != others["prompt"]
    assert SALT.hex() not in text


def test_another_version_is_refused() -> None:
    """What a newer Pagoda wrote is not read as if it were known."""
    for version in ("2", "null", '"1"', "[1]"):
        with pytest.raises(Unreadable, match="version"):
            Recording().take(f'{{"pagoda_trace": {version}, "block_tokens": 4}}')
    with pytest.raises(Unreadable, match="block_tokens"):
        Recording().take('{"pagoda_trace": 1, "block_tokens": 0}')


GOOD = {"at_s": 1, "input": 9, "output": 8, "prompt": "0" * 32, "generated": "1" * 16}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"at_s": -1}, "at_s"),
        ({"input": 0}, "input"),
        ({"output": None}, "output"),
        ({"prompt": "0" * 16}, "2 whole blocks"),
        ({"prompt": "0" * 31}, "hexadecimal"),
        ({"prompt": "G" * 32}, "hexadecimal"),
        ({"prompt": ["0" * 32]}, "hexadecimal"),
        ({"generated": "1" * 48}, "completes 2"),
        ({"hint": "maybe"}, "hint"),
        ({"hint": []}, "hint"),
        ({"pagoda_trace": 1}, "second recording"),
    ],
)
def test_bad_lines_are_named(change: dict[str, object], what: str) -> None:
    """A field that is wrong is named."""
    codec = Recording()
    codec.take(HEADER)
    codec.take(json.dumps(GOOD))
    with pytest.raises(Malformed, match=what):
        codec.take(json.dumps(GOOD | change))
    assert len(codec.requests()) == 1
