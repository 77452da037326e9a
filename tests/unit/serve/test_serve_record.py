"""Recordings: what ends is written, privately and whole, and serving never waits for it."""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagoda.core.errors import SettingsError
from pagoda.core.events import Ended, Event, Evicted, ignore
from pagoda.core.identity import NamespaceId, chain
from pagoda.core.policy.port import Hint
from pagoda.core.trace.recorded import RecordingLines
from pagoda.lab.replay.files import read_trace
from pagoda.serve import record
from pagoda.serve.record import Recorder

SIZE = 4
WRITE = os.write


def ended(
    tokens: list[int], *, prompt: int, arrived_s: float = 0.0, hint: Hint = Hint.NONE
) -> Ended:
    """A request of `tokens`, the first `prompt` of which were asked."""
    return Ended(
        arrived_s=arrived_s,
        prompt_tokens=prompt,
        completion_tokens=len(tokens) - prompt,
        keys=tuple(chain(NamespaceId(bytes(32)), tokens, block_tokens=SIZE)),
        hint=hint,
        reason="stop",
    )


ONE = ended([1, 2, 3, 4, 5, 6, 7, 8], prompt=5)


@pytest.fixture
def recorders(tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """Starts recordings on a clock that stands at 100 s; ends those that a test leaves."""
    made: list[Recorder] = []

    def start(name: str = "day.jsonl") -> Recorder:
        made.append(Recorder(tmp_path / name, clock=lambda: 100.0))
        made[-1].begin(SIZE)
        return made[-1]

    yield start
    for recorder in made:
        recorder._thread.join(0)
        if recorder._thread.is_alive():
            recorder.close()


@st.composite
def endings(draw: st.DrawFn) -> Ended:
    """A request of few different tokens."""
    tokens = draw(st.lists(st.integers(0, 1), min_size=1, max_size=20))
    return ended(
        tokens,
        prompt=draw(st.integers(1, len(tokens))),
        arrived_s=100.0 + draw(st.integers(0, 20)) / 4,
        hint=draw(st.sampled_from(Hint)),
    )


@given(st.lists(endings(), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_what_ended_can_be_replayed(
    recorders: Callable[..., Recorder], events: list[Ended]
) -> None:
    """The trace has every request in order of arrival, with ids that are equal where keys are;
    the file is for its owner alone and has no key in it."""
    recorder = recorders()
    observe = recorder.observing(ignore)
    for event in events:
        observe(event)
    recorder.close()
    assert recorder.written == len(events)
    assert stat.S_IMODE(recorder.path.stat().st_mode) == 0o600
    trace = read_trace(recorder.path).trace
    ordered = sorted(events, key=lambda event: event.arrived_s)
    assert trace.block_tokens == SIZE
    id_of: dict[bytes, int] = {}
    for request, event in zip(trace.requests, ordered, strict=True):
        assert request.at_s == event.arrived_s - ordered[0].arrived_s
        assert (request.input_tokens, request.output_tokens, request.hint) == (
            event.prompt_tokens,
            event.completion_tokens,
            event.hint,
        )
        for key, block in zip(event.keys, request.whole(SIZE), strict=True):
            assert id_of.setdefault(key, block) == block
    assert len(set(id_of.values())) == len(id_of)
    text = recorder.path.read_text()
    assert not any(key.hex()[:16] in text for key in id_of)


def test_two_recordings_have_no_name_in_common(recorders: Callable[..., Recorder]) -> None:
    """Names are salted anew each time: who has two recordings cannot tell that both asked the
    same."""
    lines = []
    for name in ("one", "two"):
        recorder = recorders(name)
        recorder.observing(ignore)(ONE)
        recorder.close()
        lines.append(recorder.path.read_text().splitlines()[1])
    assert lines[0] != lines[1]


def test_every_event_is_handed_on(recorders: Callable[..., Recorder]) -> None:
    """Recording takes nothing from who else listens."""
    heard: list[Event] = []
    observe = recorders().observing(heard.append)
    events: list[Event] = [ONE, Evicted(tier="host", blocks=1)]
    for event in events:
        observe(event)
    assert heard == events


def test_an_older_recording_is_left_as_it_is(recorders: Callable[..., Recorder]) -> None:
    """A restarted server with the same settings writes beside it, under a number."""
    paths = []
    for _ in range(3):
        recorder = recorders()
        recorder.observing(ignore)(ONE)
        recorder.close()
        paths.append(recorder.path)
    assert [path.name for path in paths] == ["day.jsonl", "day.2.jsonl", "day.3.jsonl"]
    assert [len(read_trace(path).trace.requests) for path in paths] == [1, 1, 1]


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    """Another file, a link to one, a pipe, a directory, and a place that is not there: each is
    named, and left as it was."""
    other = tmp_path / "other.jsonl"
    other.write_text("mine\n")
    (tmp_path / "link").symlink_to(other)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    for name in ("other.jsonl", "link", "dangling", "pipe", ".", "none/day.jsonl", "day.jsonl/x"):
        with pytest.raises(SettingsError, match="cannot record in") as caught:
            Recorder(tmp_path / name)
        assert caught.value.key == "server.record"
        assert caught.value.remedy
    assert sorted(tmp_path.iterdir()) == before
    assert other.read_text() == "mine\n"


def test_a_recording_that_never_began_leaves_no_file(tmp_path: Path) -> None:
    """A model that cannot be loaded leaves nothing behind; nor does what was left before a crash
    keep the next start from recording."""
    Recorder(tmp_path / "day").close()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "day").touch()
    recorder = Recorder(tmp_path / "day")
    recorder.close()
    assert [path.name for path in tmp_path.iterdir()] == ["day"]


def test_a_full_disk_ends_the_recording_alone(
    recorders: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line of which half fits is taken back, one warning is given, events go on; what was
    written before can be replayed."""
    recorder = recorders()
    room = [200]

    def write(file: int, data: memoryview) -> int:
        if file != recorder._file:
            return WRITE(file, data)
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = WRITE(file, data[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr(record.os, "write", write)
    heard: list[Event] = []
    observe = recorder.observing(heard.append)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            observe(ONE)
        recorder.close()
    assert len(heard) == 20
    assert [entry.levelname for entry in caplog.records] == ["WARNING"]
    assert "serving goes on" in caplog.text
    assert room[0] == 0
    assert len(read_trace(recorder.path).trace.requests) == recorder.written == 1


def test_a_slow_disk_holds_up_nobody(
    recorders: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What does not fit the queue is left out, counted and told once; neither an event nor the
    end waits for a write that hangs."""
    monkeypatch.setattr(record, "QUEUED_BLOCKS", 3 * len(ONE.keys))
    monkeypatch.setattr(record, "CLOSING_S", 0.05)
    recorder = recorders()
    writing, go_on = threading.Event(), threading.Event()

    def write(file: int, data: memoryview) -> int:
        writing.set()
        go_on.wait(30)
        return WRITE(file, data)

    monkeypatch.setattr(record.os, "write", write)
    observe = recorder.observing(ignore)
    with caplog.at_level(logging.WARNING):
        observe(ONE)
        assert writing.wait(30)
        for _ in range(10):
            observe(ONE)
        recorder.close()
    assert recorder.left_out == 7
    assert [entry.getMessage().partition(": ")[2] or "end" for entry in caplog.records] == [
        "some requests are not recorded",
        "end",
    ]
    go_on.set()
    recorder._thread.join(30)
    assert len(read_trace(recorder.path).trace.requests) == recorder.written == 4


def test_an_arrival_before_the_recording_counts_as_its_begin(
    recorders: Callable[..., Recorder],
) -> None:
    """A clock that is a little behind makes no line that cannot be read."""
    recorder = recorders()
    recorder.observing(ignore)(ended([1], prompt=1, arrived_s=99.9))
    recorder.close()
    assert [request.at_s for request in read_trace(recorder.path).trace.requests] == [0.0]


def test_the_first_line_can_be_told_at_once(recorders: Callable[..., Recorder]) -> None:
    """A file that is being written shows what it is."""
    recorder = recorders()
    header = RecordingLines(salt=bytes(32), block_tokens=SIZE).header()
    assert recorder.path.read_text() == header + "\n"
