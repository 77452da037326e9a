"""Logging to standard error: lines for people, or one JSON object a line.

What may be logged: identifiers, counts, sizes, times, reasons. Prompts, answers and keys never
are; as a last line of defence, given secrets are masked wherever they appear.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TextIO

_MASK = "********"
# What logging itself puts on a record; everything else came with `extra=`. In color_message
# uvicorn repeats its message with terminal colours.
_OWN_FIELDS = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
)


def configure(
    level: Literal["debug", "info", "warning", "error"] = "info",
    format: Literal["text", "json"] = "text",
    *,
    secrets: Sequence[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Send every log record of the process to `stream` (standard error), replacing what was
    configured before. `secrets` are masked in whatever is written."""
    handler = logging.StreamHandler(stream or sys.stderr)
    masked = tuple(spelling for secret in secrets for spelling in _spellings(secret))
    handler.setFormatter(JsonLines(masked) if format == "json" else TextLines(masked))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Both tell of every request, the first with its URL.
    for chatty in ("httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, logger, message, the record's
    `extra` fields, and exception with its traceback."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, object] = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        } | _extra(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(_masked(line, self._secrets))  # ASCII: U+2028 ends lines too


class TextLines(logging.Formatter):
    """time level logger: message key=value …; a traceback follows on lines of its own."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; line ends within it are escaped, so that text from outside
        cannot forge a line."""
        pairs = "".join(f" {name}={value}" for name, value in _extra(record).items())
        body = f"{record.name}: {record.getMessage()}{pairs}"
        line = _one_line(_mask(body, self._secrets))
        text = f"{_utc(record)} {record.levelname.lower():7} {line}"
        if record.exc_info:
            text += "\n" + _mask(self.formatException(record.exc_info), self._secrets)
        return text


def _utc(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _masked(line: dict[str, object], secrets: Sequence[str]) -> dict[str, object]:
    """Masked before encoding: a secret with a quote in it looks different inside JSON."""
    plain = (str, int, float, bool, type(None))
    return {
        name: _mask(str(value), secrets) if not isinstance(value, plain[1:]) else value
        for name, value in line.items()
    }


def _spellings(secret: str) -> set[str]:
    """A secret as it is, and as it looks inside the repr of something that holds it."""
    return {secret, repr(secret)[1:-1]} - {""}


def _mask(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, _MASK)
    return text
