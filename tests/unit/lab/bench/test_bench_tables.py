"""The benches' tables: nothing poor is hidden, nothing absent is a number."""

import io
from typing import Any

import pytest
from rich.console import Console, Group

from pagoda.cli.bench_tables import engine_tables, serve_tables
from pagoda.lab.bench.load import LoadSettings
from pagoda.lab.bench.load_run import Run
from pagoda.lab.bench.sample import Answer, ErrorKind, Failure, Sample
from pagoda.lab.bench.serve_report import report


def shown(group: Group) -> str:
    out = io.StringIO()
    Console(width=160, file=out).print(group)
    return out.getvalue()


def sample(answer: Answer) -> Sample:
    return Sample(session=0, turn=0, intended_s=0.0, sent_s=0.5, ended_s=3.0, answer=answer)


def serve_report(answers: list[Answer], **changes: Any) -> dict[str, Any]:
    settings = LoadSettings(requests=4, **changes)
    run = Run(samples=tuple(map(sample, answers)), seconds=3.0, unsent=4 - len(answers))
    return report(run, settings) | {"server": {"model": "tiny"}}


def test_absent_cache_counts_are_said() -> None:
    """A server that does not count cached tokens has "not reported", not 0 %."""
    text = shown(serve_tables(serve_report([Answer(text="x", arrivals_s=(1.0, 1.25))])))
    assert "not reported" in text
    assert "1,000.0" in text
    assert "250.0" in text


def test_errors_and_unsent_requests_are_shown() -> None:
    """A run in which everything failed still has its table, with the server's words."""
    failure = Failure(kind=ErrorKind.HTTP, status=503, message="busy")
    text = shown(serve_tables(serve_report([Answer(failure=failure)])))
    assert "0 served, 1 failed, 3 unsent of 4" in text
    assert "http 503" in text
    assert "busy" in text


@pytest.mark.parametrize(("rate", "is_open"), [(None, False), (2.0, True)])
def test_lateness_is_shown_in_an_open_loop_only(rate: float | None, is_open: bool) -> None:
    """In a closed loop a request is sent when it is meant to be."""
    answers = [Answer(text="x", arrivals_s=(1.0,))]
    text = shown(serve_tables(serve_report(answers, rate_per_s=rate)))
    assert ("sent later than meant" in text) is is_open
    assert ("from sending" in text) is is_open


def test_missed_goals_stand_out() -> None:
    """Met, missed and unjudged figures are told apart, each beside its goal."""
    figures = [
        {"name": f"figure {met}", "value": 1234.5, "unit": "ms", "goal": "<= 7", "met": met}
        for met in (True, False, None)
    ]
    host = {"cpu": "chip", "cpus_usable": 2, "load_1m": 0.1, "pagoda": "1", "python": "3"}
    found = {
        "model": "tiny",
        "threads": 2,
        "parts": {"memory": {"figures": figures, "rows": []}},
        "host": host,
        "load_1m_after": 5.0,
    }
    lines = {
        line.split()[2]: line
        for line in shown(engine_tables(found)).splitlines()
        if "figure " in line and "1,2" in line
    }
    assert "met" in lines["True"]
    assert "NOT MET" in lines["False"]
    assert "not judged" in lines["None"]
    assert all("<= 7" in line for line in lines.values())
    assert "load 0.1 before and 5.0 after" in shown(engine_tables(found))
