"""The event-stream parser against the standard, whatever the reads' boundaries."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.lab.bench.sse import EVENT_CHARS_MAX, BadStreamError, SseParser

STREAM = (
    b"\xef\xbb\xbf: a comment\r\n"
    b"event: message\r\ndata: one\r\n\r\n"
    b"data: x\r\ndata: y\r\n\r\n"
    b"data:two\rdata: \xc3\xa9tage \xe5\xa1\x94\r\r"
    b"id: 7\ndata\n\n"
    b"\n\nretry: 10\n\n"
    b"data:  indented: by one\n\n"
    b"data: [DONE]"
)
EVENTS = ["one", "x\ny", "two\nétage 塔", "", " indented: by one", "[DONE]"]


def parse(chunks: list[bytes]) -> list[str]:
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.finish()


def test_whole_stream_gives_the_standards_events() -> None:
    """All three line ends, comments, other fields, several data lines, a missing last line end."""
    assert parse([STREAM]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_read_boundaries_do_not_matter(cuts: list[int]) -> None:
    """The events are the same wherever the network cuts the bytes, also inside CR LF or a
    character."""
    edges = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert parse(chunks) == EVENTS


def test_every_byte_alone() -> None:
    """Byte by byte is the worst case of the above."""
    assert parse([bytes([byte]) for byte in STREAM]) == EVENTS


def test_events_come_as_soon_as_they_are_complete() -> None:
    """An event is handed over with the read that ends it, not with the next one."""
    parser = SseParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\n") == ["a"]


@pytest.mark.parametrize("line", [b"x" * 65536, b"data: " + b"x" * 65529 + b"\n"])
def test_endless_event_is_refused(line: bytes) -> None:
    """A server that never ends a line, or an event, cannot fill the memory."""
    with pytest.raises(BadStreamError, match="longer than"):
        parse([line] * (EVENT_CHARS_MAX // 65536 + 2))
