"""Logging: one line a record, whatever is in it, and no secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.watch.logs import JsonLines, TextLines, configure

SECRET = 's3"cret\\key'


@pytest.fixture(autouse=True)
def _restore_root() -> Iterator[None]:
    """Put the process's logging back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def record(message: str, **extra: object) -> logging.LogRecord:
    """A record as a logger would make it."""
    return logging.getLogger("pagoda.test").makeRecord(
        "pagoda.test", logging.WARNING, __file__, 1, message, (), None, extra=extra
    )


@given(st.text())
def test_a_record_is_one_line(message: str) -> None:
    """No text from outside can forge a second line, in either format."""
    for formatter in (TextLines(), JsonLines()):
        assert len(formatter.format(record(message, path=message)).splitlines()) == 1


@given(st.text())
def test_json_holds_the_message_and_the_extra_fields(message: str) -> None:
    """A program reads back what was logged."""
    line = json.loads(JsonLines().format(record(message, tier="drive", blocks=3)))
    assert line["message"] == message
    assert (line["tier"], line["blocks"], line["level"]) == ("drive", 3, "warning")
    assert line["time"].endswith("Z")


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_secret_is_masked_everywhere(format: Literal["text", "json"]) -> None:
    """In the message, in an extra field, nested in one, and in a traceback."""
    stream = io.StringIO()
    configure("debug", format, secrets=(SECRET, ""), stream=stream)
    log = logging.getLogger("pagoda.test")
    log.warning("key %s", SECRET, extra={"key": SECRET, "headers": {"x": SECRET}})
    try:
        {}[SECRET]
    except KeyError:
        log.exception("failed")
    written = stream.getvalue()
    assert "********" in written
    for spelling in (SECRET, repr(SECRET), json.dumps(SECRET)[1:-1]):
        assert spelling not in written


def test_the_level_holds_and_a_second_call_replaces_the_first() -> None:
    """Records below the level vanish; handlers do not pile up."""
    first, second = io.StringIO(), io.StringIO()
    configure("debug", stream=first)
    configure("warning", stream=second)
    logging.getLogger("pagoda.test").info("quiet")
    logging.getLogger("pagoda.test").warning("loud")
    assert first.getvalue() == ""
    assert "loud" in second.getvalue()
    assert "quiet" not in second.getvalue()


def test_terminal_colours_of_uvicorn_are_left_out() -> None:
    """Its second message, full of escapes, would only be noise."""
    for formatter in (TextLines(), JsonLines()):
        assert "[36m" not in formatter.format(record("up", color_message="\x1b[36mup"))


def test_http_clients_do_not_log_urls() -> None:
    """httpx tells of each request at INFO, with its URL."""
    stream = io.StringIO()
    configure("info", stream=stream)
    logging.getLogger("httpx").info("GET http://example.org/?token=1")
    assert stream.getvalue() == ""
