"""A load against servers in memory, on a clock that jumps: moments, growth, failures, bounds."""

import asyncio
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from jumping_loop import run
from streaming_server import FakeServer, Step, answer, delta, event

from pagoda.lab.bench.load import LoadSettings, Profile
from pagoda.lab.bench.load_run import Run, run_load
from pagoda.lab.bench.sample import ErrorKind
from pagoda.lab.bench.serve_report import report

SHORT = answer(0.5, 0.1, 4)


def always(steps: Sequence[Step], status: int = 200) -> FakeServer:
    return FakeServer(lambda _number, _body: (status, steps))


def load(server: FakeServer, settings: LoadSettings) -> Run:
    async def main() -> Run:
        return await run_load(server.asker(), settings, lambda _sample: None)

    return run(main())


def kinds(done: Run) -> set[ErrorKind]:
    return {s.answer.failure.kind for s in done.samples if s.answer.failure is not None}


def test_latencies_are_the_servers_delays() -> None:
    """First token, gaps and end to end are what the server waited; the empty role event that
    opens a stream is not a first token."""
    done = load(always(SHORT), LoadSettings(requests=6, sessions=2))
    found = report(done, LoadSettings(requests=6, sessions=2))
    assert found["latency_s"]["first_token"]["p50"] == pytest.approx(0.5)
    assert found["latency_s"]["between_tokens"]["p99"] == pytest.approx(0.1)
    assert found["latency_s"]["between_tokens"]["count"] == 6 * 3
    assert found["latency_s"]["end_to_end"]["max"] == pytest.approx(0.8)
    assert found["cache"]["cached_share"] == pytest.approx(0.4)
    assert found["throughput"]["output_tokens"] == 24
    assert found["throughput"]["counted_by"] == "server"
    assert found["requests"] == {"planned": 6, "served": 6, "failed": 0, "unsent": 0}


def test_a_cancelled_load_keeps_what_was_measured() -> None:
    """Cancelled after two answers of 0.8 s each: both count, the third is not a failure."""
    server, settings = always(SHORT), LoadSettings(requests=9, sessions=3, concurrency=1)

    async def main() -> Run:
        running = asyncio.create_task(run_load(server.asker(), settings, lambda _sample: None))
        await asyncio.sleep(2.0)
        running.cancel()
        return await running

    done = run(main())
    assert done.interrupted
    assert (len(done.samples), done.unsent, kinds(done)) == (2, 7, set())
    assert done.seconds == pytest.approx(1.6)
    assert not load(server, settings).interrupted


def test_sessions_grow_by_answer_and_question() -> None:
    """Turn n sends what turn n-1 sent, then its answer, then a new question: a prefix that a
    cache can hold."""
    server = always(SHORT)
    load(server, LoadSettings(requests=4, sessions=1))
    talks = [body["messages"] for body in server.bodies]
    for before, after in itertools.pairwise(talks):
        assert after[: len(before)] == before
        assert after[len(before)] == {"role": "assistant", "content": "w0 w1 w2 w3 "}
        assert len(after) == len(before) + 2
    assert [message["role"] for message in talks[-1]][-1] == "user"


def test_closed_loop_keeps_its_concurrency() -> None:
    """A closed loop has `concurrency` requests in flight, never more, and is never late."""
    server = always(SHORT)
    done = load(server, LoadSettings(requests=30, sessions=10, concurrency=3))
    assert server.most_in_flight == 3
    assert done.seconds == pytest.approx(0.8 * 30 / 3 + 0.8, abs=0.9)
    assert all(sample.late_s == pytest.approx(0, abs=1e-9) for sample in done.samples)


def test_think_time_is_between_answer_and_question() -> None:
    """Thinking delays the next question and counts in no latency."""
    done = load(always(SHORT), LoadSettings(requests=5, sessions=1, think_s=7.0))
    pauses = [
        after.intended_s - before.ended_s for before, after in itertools.pairwise(done.samples)
    ]
    assert min(pauses) > 0
    assert len(set(pauses)) == 4
    assert all(s.first_s == pytest.approx(0.5) for s in done.samples)


def test_open_loop_sends_on_time_however_slow_the_server() -> None:
    """Arrivals do not wait for answers."""
    server = always(answer(50.0, 0.1, 2))
    settings = LoadSettings(profile=Profile.SHARED_PREFIX, requests=20, rate_per_s=10.0, words=10)
    done = load(server, settings)
    assert max(sample.late_s for sample in done.samples) == pytest.approx(0, abs=1e-6)
    assert server.most_in_flight == 20


def test_stalled_server_cannot_hide_the_requests_it_held_back() -> None:
    """Coordinated omission: with one request allowed in flight and a stall of 30 s, the
    requests that were due meanwhile count their wait; from sending alone, all but one look
    fast."""

    def script(number: int, _body: dict[str, Any]) -> tuple[int, Sequence[Step]]:
        return 200, answer(30.0 if number == 0 else 0.01, 0.0, 1)

    settings = LoadSettings(
        profile=Profile.SHARED_PREFIX, requests=50, rate_per_s=2.0, concurrency=1, words=10
    )
    found = report(load(FakeServer(script), settings), settings)
    assert found["latency_s"]["first_token_from_send"]["p90"] == pytest.approx(0.01)
    assert found["latency_s"]["first_token"]["p50"] > 10
    assert found["late_s"]["p50"] > 10


def test_run_ends_at_its_time_and_says_what_it_cut_off() -> None:
    """A run against a server that never answers ends after `duration_s`; requests in flight
    are cut off, the others unsent, and all are accounted for."""
    settings = LoadSettings(requests=9, sessions=9, concurrency=2, duration_s=20.0)
    done = load(always([math.inf]), settings)
    assert done.seconds == pytest.approx(20.0)
    assert kinds(done) == {ErrorKind.CUT_OFF}
    assert (len(done.samples), done.unsent) == (2, 7)


def test_open_loop_ends_at_its_time_too() -> None:
    """Arrivals planned for after the end are unsent, and nobody waits for their moments."""
    settings = LoadSettings(
        profile=Profile.SHARED_PREFIX, requests=100, rate_per_s=1.0, duration_s=10.0, words=5
    )

    async def main() -> tuple[Run, float]:
        began_s = asyncio.get_running_loop().time()
        done = await run_load(always(SHORT).asker(), settings, lambda _sample: None)
        return done, asyncio.get_running_loop().time() - began_s

    done, took_s = run(main())
    assert 0 < len(done.samples) < 30
    assert done.unsent == 100 - len(done.samples)
    assert took_s <= 10.0 + 1e-6


def test_slow_request_times_out_alone() -> None:
    """A request over --timeout fails by itself; the other sessions go on."""

    def script(number: int, _body: dict[str, Any]) -> tuple[int, Sequence[Step]]:
        return 200, answer(100.0, 0.0, 1) if number == 0 else SHORT

    settings = LoadSettings(requests=4, sessions=4, concurrency=1, timeout_s=5.0)
    done = load(FakeServer(script), settings)
    assert kinds(done) == {ErrorKind.TIMEOUT}
    assert sum(sample.served for sample in done.samples) == 3


def test_failed_session_stops_growing() -> None:
    """After a failure the rest of the session is unsent: its prefix would be a lie."""
    settings = LoadSettings(requests=6, sessions=2)
    done = load(always([b'{"error": {"message": "no"}}'], status=503), settings)
    assert len(done.samples) == 2
    assert done.unsent == 4


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([delta("half")], ErrorKind.TRUNCATED),
        ([delta(None, finish="stop"), event("[DONE]")], ErrorKind.EMPTY),
        ([event("not json")], ErrorKind.BAD_STREAM),
        ([event("[" * 200_000)], ErrorKind.BAD_STREAM),
        ([event("[1]")], ErrorKind.BAD_STREAM),
        ([b'{"choices": []}'], ErrorKind.BAD_STREAM),
        ([delta("x"), event({"error": {"message": "lost"}}), event("[DONE]")], ErrorKind.SERVER),
    ],
)
def test_bad_streams_are_told_apart(steps: list[Step], kind: ErrorKind) -> None:
    """Each way a stream goes wrong has its own name, and none of them ends the run."""
    done = load(always(steps), LoadSettings(requests=1))
    assert kinds(done) == {kind}


def test_refusals_are_counted_by_status_with_their_message() -> None:
    """HTTP errors are counted by status; the server's own words are kept once."""
    body = b'{"error": {"message": "slow down", "type": "rate"}}'
    settings = LoadSettings(requests=5, sessions=5)
    found = report(load(always([body], status=429), settings), settings)
    assert found["errors"] == [{"kind": "http 429", "count": 5, "example": "slow down"}]
    assert found["latency_s"]["first_token"] is None


def test_absent_counts_are_not_reported_as_zero() -> None:
    """A server that sends no usage has no cached share, and its tokens are counted by events."""
    done = load(always([delta("a"), delta("b", finish="stop")]), LoadSettings(requests=2))
    found = report(done, LoadSettings(requests=2))
    assert found["cache"]["cached_share"] is None
    assert found["throughput"]["counted_by"] == "events"
    assert found["throughput"]["output_tokens"] == 4
    assert found["throughput"]["tokens_per_event"] == 1
