"""`pagoda chat`: many turns, counts below answers, stopping, and errors with a remedy."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pagoda as package
from pagoda.cli.answers import Counts, EngineSource, Message, Options, ServerSource
from pagoda.cli.chat import Answer, converse, printable, server_url
from pagoda.core.errors import PagodaError, RequestError, SettingsError
from pagoda.engine.api import (
    CacheScope,
    FinishReason,
    ModelCard,
    Request,
    Sampling,
    Sink,
    Update,
    Usage,
)
from pagoda.settings import Server

pty = pytest.importorskip("pty", reason="pseudo-terminals are POSIX")


class Script:
    """A screen that asks given lines and remembers what it was shown."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines
        self.shown = ""
        self.answers: list[Answer] = []
        self.errors: list[PagodaError] = []

    def lines(self) -> Iterator[str]:
        """The given lines."""
        return iter(self._lines)

    def piece(self, text: str) -> None:
        """Remember."""
        self.shown += text

    def end(self, answer: Answer) -> None:
        """Remember."""
        self.answers.append(answer)

    def failed(self, error: PagodaError) -> None:
        """Remember, and go on."""
        self.errors.append(error)


class Echo:
    """A source that repeats the last question; it fails or is interrupted on command."""

    def __init__(self) -> None:
        self.asked: list[list[Message]] = []
        self.closed_streams = 0

    def connect(self) -> str:
        """Always there."""
        return "echo"

    def close(self) -> None:
        """Nothing to close."""

    def stream(self, messages: Sequence[Message]) -> Generator[str | Counts, None, None]:
        """The question in two pieces."""
        self.asked.append(list(messages))
        text = messages[-1]["content"]
        try:
            if text == "fail":
                raise RequestError("refused")
            yield text[:1]
            if text == "stop":
                raise KeyboardInterrupt
            yield text[1:]
            yield Counts(prompt_tokens=9, completion_tokens=2, cached_tokens=4)
        finally:
            self.closed_streams += 1


def serve_source(url: str, key: str = "") -> ServerSource:
    """A source that talks to `url`."""
    return ServerSource(url, model=None, api_key=key, options=Options(max_tokens=5))


@given(st.lists(st.text(min_size=1).filter(str.strip), max_size=6))
def test_each_question_comes_with_all_that_was_said(lines: list[str]) -> None:
    """The roles take turns, the system's first, and nothing said is lost."""
    source = Echo()
    answerable = [line for line in lines if line not in {"fail", "stop"}]
    converse(source, Script(*answerable), system="be kind")
    for count, messages in enumerate(source.asked):
        assert messages[0] == {"role": "system", "content": "be kind"}
        said = [message["content"] for message in messages[1:]]
        expected = [text for line in answerable[:count] for text in (line, line)]
        assert said == [*expected, answerable[count]]
        roles = [message["role"] for message in messages[1:]]
        assert roles == ["user", "assistant"] * count + ["user"]


def test_empty_lines_ask_nothing() -> None:
    """Enter alone is no question."""
    source = Echo()
    converse(source, Script("", "  ", "\t"))
    assert source.asked == []


def test_an_interrupt_stops_the_answer_and_not_the_conversation() -> None:
    """Half an answer is kept, its stream is closed, and the next question follows."""
    source, screen = Echo(), Script("stop", "on")
    converse(source, screen)
    assert [answer.stopped for answer in screen.answers] == [True, False]
    assert screen.answers[0].text == "s"
    assert [m["content"] for m in source.asked[1]] == ["stop", "s", "on"]
    assert source.closed_streams == 2


def test_a_refused_question_is_forgotten() -> None:
    """After an error the conversation goes on as if the question had not been asked."""
    source, screen = Echo(), Script("fail", "on")
    converse(source, screen)
    assert len(screen.errors) == 1
    assert [m["content"] for m in source.asked[1]] == ["on"]


def test_the_summary_tells_times_and_cached_tokens() -> None:
    """First token, count, speed after it, and how much of the prompt was cached."""
    counts = Counts(prompt_tokens=120, completion_tokens=11, cached_tokens=96)
    answer = Answer(text="x", first_token_s=0.5, total_s=1.5, counts=counts)
    assert answer.summary() == (
        "first token 0.50 s · 11 tokens · 10 tokens/s · 96 of 120 prompt tokens cached"
    )
    assert Answer(text="", first_token_s=None, total_s=1, counts=None, stopped=True).summary() == (
        "stopped"
    )


@given(st.text())
def test_answers_cannot_steer_the_terminal(text: str) -> None:
    """No control character but line ends and tabs passes; all other text does."""
    shown = printable(text)
    assert not {c for c in shown if (ord(c) < 32 or 127 <= ord(c) < 160) and c not in "\n\t"}
    assert printable(shown) == shown
    assert printable("é 👩‍🔬 語\n") == "é 👩‍🔬 語\n"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("example.org", "http://example.org:8000"),
    ],
)
def test_the_url_of_our_own_server(host: str, url: str) -> None:
    """A wildcard address is reached over loopback, IPv6 is bracketed."""
    assert server_url(Server(host=host)) == url


def test_a_server_is_asked_as_openai_specifies(fake_server: Any) -> None:
    """Streaming, with usage, the first model served, and only what was chosen."""
    source = serve_source(fake_server.url, key="hush")
    assert source.connect() == f"tiny at {fake_server.url}"
    pieces = list(source.stream([{"role": "user", "content": "hi"}]))
    source.close()
    assert pieces == [
        "Hel",
        "lo",
        Counts(prompt_tokens=20, completion_tokens=2, cached_tokens=16),
    ]
    assert fake_server.keys == ["Bearer hush"]
    assert fake_server.bodies == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 5,
        }
    ]


@pytest.mark.parametrize(
    ("usage", "cached"),
    [({"prompt_tokens": 3, "prompt_tokens_details": None}, None), ({"prompt_tokens": 3}, None)],
)
def test_a_server_need_not_tell_cached_tokens(
    fake_server: Any, usage: dict[str, Any], cached: int | None
) -> None:
    """Other servers leave the details out; that is not zero."""
    fake_server.usage = usage
    source = serve_source(fake_server.url)
    *_, counts = source.stream([{"role": "user", "content": "hi"}])
    source.close()
    assert isinstance(counts, Counts)
    assert counts.cached_tokens is cached


@pytest.mark.parametrize(
    ("status", "kind"), [(400, RequestError), (404, RequestError), (401, SettingsError)]
)
def test_a_refusal_tells_the_servers_reason(
    fake_server: Any, status: int, kind: type[PagodaError]
) -> None:
    """The message of the OpenAI error object is shown; a missing key has its remedy."""
    fake_server.status = status
    fake_server.error = {"message": "because of this"}
    source = serve_source(fake_server.url)
    with pytest.raises(kind, match="because of this"):
        list(source.stream([{"role": "user", "content": "hi"}]))
    source.close()


def test_a_full_context_has_its_remedy(fake_server: Any) -> None:
    """Every further question would be refused as well, so the person is told what helps."""
    fake_server.status = 400
    fake_server.error = {"message": "8193 tokens", "code": "context_length_exceeded"}
    source = serve_source(fake_server.url)
    with pytest.raises(RequestError) as caught:
        list(source.stream([{"role": "user", "content": "hi"}]))
    source.close()
    assert "start a new one" in caught.value.remedy


@pytest.mark.parametrize(
    "raw",
    [b"data: {\n\n", b"data: 7\n\n", b'data: {"error": {"message": "out of memory"}}\n\n'],
)
def test_a_broken_stream_is_an_error(fake_server: Any, raw: bytes) -> None:
    """Half a JSON object, another type, and an error in mid-stream end in a PagodaError."""
    fake_server.raw = raw
    source = serve_source(fake_server.url)
    with pytest.raises(PagodaError):
        list(source.stream([{"role": "user", "content": "hi"}]))
    source.close()


def test_nobody_listening_is_told_with_the_remedy(pagoda: Any) -> None:
    """The error names the URL, says how to start a server, and is status 1."""
    result = pagoda("chat", "--url", "http://127.0.0.1:9")
    assert result.status == 1
    assert "nothing answers at http://127.0.0.1:9" in result.err
    assert "pagoda serve --model" in result.err


def test_piped_lines_are_questions(
    pagoda: Any, fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers go to standard output, summaries to standard error."""
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\ntwo\n"))
    result = pagoda("chat", "--url", fake_server.url)
    assert (result.status, result.out) == (0, "Hello\nHello\n")
    assert result.err.count("16 of 20 prompt tokens cached") == 2
    assert [len(body["messages"]) for body in fake_server.bodies] == [1, 3]


def test_json_answers_are_lines(
    pagoda: Any, fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --json each answer is one object with text, times and counts."""
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    result = pagoda("chat", "--json", "--url", fake_server.url)
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [answer["text"] for answer in answers] == ["Hello", "Hello"]
    assert answers[0]["counts"]["cached_tokens"] == 16
    assert 0 < answers[0]["first_token_s"] <= answers[0]["total_s"]


def test_our_own_server_answers_greedily_and_others_as_they_are_set(
    pagoda: Any, fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --temperature it is 0 for our own models and left to a server that --url names."""
    monkeypatch.setenv("PAGODA_SERVER_PORT", fake_server.url.rsplit(":", 1)[1])
    for args in ([], ["--url", fake_server.url], ["--temperature", "0.5"]):
        monkeypatch.setattr("sys.stdin", io.StringIO("one\n"))
        pagoda("chat", *args)
    assert [body.get("temperature") for body in fake_server.bodies] == [0.0, None, 0.5]


def test_loading_is_told_without_a_terminal(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A script's log says which model is loaded; answers have standard output to themselves."""
    composed = SimpleNamespace(open_engine=lambda settings: FakeEngine())
    monkeypatch.setitem(sys.modules, "pagoda.serve.compose", composed)  # type: ignore[arg-type]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    result = pagoda("chat", "--model", "tiny")
    assert (result.status, result.out) == (0, "")
    assert result.err == "loading tiny\n"


def test_the_settings_key_goes_to_our_own_server_only(
    pagoda: Any, fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of our server must not be sent to whatever --url names."""
    monkeypatch.setenv("PAGODA_SERVER_API_KEY", "ours")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    pagoda("chat", "--url", fake_server.url)
    monkeypatch.setenv("PAGODA_SERVER_PORT", fake_server.url.rsplit(":", 1)[1])
    pagoda("chat")
    monkeypatch.setenv("PAGODA_API_KEY", "theirs")
    pagoda("chat", "--url", fake_server.url)
    assert fake_server.keys == [None, "Bearer ours", "Bearer theirs"]


class FakeEngine:
    """An engine that answers at once, from the caller's thread."""

    def __init__(self, *updates: Update) -> None:
        self._updates = updates
        self.requests: list[Request] = []
        self.cancelled: list[str] = []
        self.closed = False

    @property
    def card(self) -> ModelCard:
        """A model of 100 tokens' context."""
        return ModelCard(name="tiny", context_tokens=100, vocab_size=9, block_tokens=16)

    @property
    def codec(self) -> FakeEngine:
        """Itself."""
        return self

    def encode(self, text: str) -> list[int]:
        """A token a character."""
        return [ord(c) for c in text]

    def decode(self, token_ids: list[int]) -> str:
        """The characters."""
        return "".join(map(chr, token_ids))

    def render_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """The contents, one after the other."""
        return self.encode("".join(message["content"] for message in messages))

    def submit(self, request: Request, sink: Sink) -> None:
        """All updates at once."""
        self.requests.append(request)
        for update in self._updates:
            sink(update)

    def cancel(self, request_id: str) -> None:
        """Remember."""
        self.cancelled.append(request_id)

    def reset_cache(self, scope: CacheScope) -> int:
        """Nothing to reset."""
        return 0

    def stats(self) -> dict[str, float]:
        """None."""
        return {}

    def healthy(self) -> bool:
        """Always."""
        return True

    def close(self, *, flush_s: float = 10.0) -> None:
        """Remember."""
        self.closed = True


USAGE = Usage(prompt_tokens=7, completion_tokens=3, cached_device=2, cached_restored=4)
PIECE = Update(request_id="x", text="Hi", usage=USAGE)


def test_an_engine_in_this_process_answers() -> None:
    """Text as it comes, then counts with both kinds of cached tokens; nothing is cancelled."""
    last = Update(request_id="x", finish=FinishReason.STOP, usage=USAGE)
    engine = FakeEngine(PIECE, last)
    source = EngineSource(engine, options=Options(temperature=0.0))
    pieces = list(source.stream([{"role": "user", "content": "hey"}]))
    assert pieces == ["Hi", Counts(prompt_tokens=7, completion_tokens=3, cached_tokens=6)]
    assert engine.requests[0].sampling == Sampling(temperature=0.0, max_tokens=97)
    assert engine.cancelled == []
    source.close()
    assert engine.closed


def test_leaving_an_engines_answer_cancels_the_request() -> None:
    """A stopped answer frees its blocks: the request is cancelled by its id."""
    engine = FakeEngine(PIECE)
    stream = EngineSource(engine, options=Options()).stream([{"role": "user", "content": "hey"}])
    assert next(stream) == "Hi"
    stream.close()
    assert engine.cancelled == [engine.requests[0].id]


def test_an_engines_failure_is_an_error() -> None:
    """FinishReason.ERROR is raised with its message."""
    last = Update(request_id="x", finish=FinishReason.ERROR, error="it broke", usage=USAGE)
    source = EngineSource(FakeEngine(last), options=Options())
    with pytest.raises(PagodaError, match="it broke"):
        list(source.stream([{"role": "user", "content": "hey"}]))


class Typist:
    """A person at a pseudo-terminal in front of `pagoda chat`."""

    def __init__(self, url: str, home: Path) -> None:
        self._own, theirs = pty.openpty()
        home_only = {"XDG_CONFIG_HOME": str(home), "TERM": "dumb", "HOME": str(home)}
        sources = {"PYTHONPATH": str(Path(package.__file__).parents[1])}  # cwd differs
        environ = os.environ | home_only | sources
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pagoda", "chat", "--url", url],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environ,
            cwd=home,
        )
        os.close(theirs)
        self.seen = ""

    def wait_for(self, text: str) -> None:
        """Read until `text` is on the screen; what is up to it is taken off."""
        assert self._sees(text, 30.0), f"{text!r} never came: {self.seen!r}"

    def interrupt_until(self, text: str) -> None:
        """Press Ctrl-C, like a person: again when nothing happens. (Python notices a signal that
        comes just before a blocking read only once that read returns.)"""
        for _ in range(8):
            self.process.send_signal(signal.SIGINT)
            if self._sees(text, 3.0):
                return
        raise AssertionError(f"Ctrl-C never brought {text!r}: {self.seen!r}")

    def _sees(self, text: str, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while text not in self.seen:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._own], [], [], left_s)[0]:
                return False
            self.seen += os.read(self._own, 4096).decode()
        self.seen = self.seen.split(text, 1)[1]
        return True

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._own, keys)

    def leave(self) -> int:
        """Wait for the end; returns the exit status."""
        status = self.process.wait(timeout=30)
        os.close(self._own)
        return status


@pytest.fixture
def typist(fake_server: Any, tmp_path: Path) -> Iterator[Typist]:
    """A person in front of a server whose answers stay open until `hold` is set."""
    typist = Typist(fake_server.url, tmp_path)
    yield typist
    if typist.process.poll() is None:
        typist.process.kill()
        typist.process.wait()


def test_a_person_stops_an_answer_and_leaves(fake_server: Any, typist: Typist) -> None:
    """At a terminal: Ctrl-C drops a line, and stops an answer that hangs; Ctrl-D leaves."""
    fake_server.hold = threading.Event()
    typist.wait_for("> ")
    typist.interrupt_until("(Ctrl-D leaves)")
    typist.wait_for("> ")
    typist.type(b"hello\r")
    typist.wait_for("Hello")
    typist.interrupt_until("stopped")
    fake_server.hold.set()
    typist.wait_for("> ")
    typist.type(b"again\r")
    typist.wait_for("16 of 20 prompt tokens cached")
    typist.wait_for("> ")
    typist.type(b"\x04")
    assert typist.leave() == 0
    assert len(fake_server.bodies[1]["messages"]) == 3
