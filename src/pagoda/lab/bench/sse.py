"""A parser of server-sent events (WHATWG HTML, "Server-sent events"), fed bytes as they come.

Network reads end anywhere: in a line, between CR and LF, in a UTF-8 character.
"""

from __future__ import annotations

import codecs

EVENT_CHARS_MAX = 4 << 20


class BadStreamError(ValueError):
    """The bytes are not a usable event stream; the client counts it and goes on."""


class SseParser:
    """Turns bytes into the `data` of each event; other fields and comments are ignored."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Data of the events that `chunk` completes. Raises BadStreamError for an event over
        EVENT_CHARS_MAX characters, so that a hostile server cannot fill the memory."""
        return self._take(self._decoder.decode(chunk), end=False)

    def finish(self) -> list[str]:
        """Data of an event that the end of the stream cut off before its empty line.

        The standard drops it; some servers end right after `[DONE]`, so it is kept.
        """
        events = self._take(self._decoder.decode(b"", final=True), end=True)
        return events + self._dispatch()

    def _take(self, text: str, *, end: bool) -> list[str]:
        pending = self._rest + text
        # A final CR may be half of CR LF: it waits for the next read.
        held = "\r" if pending.endswith("\r") and not end else ""
        body = pending[: len(pending) - len(held)]
        lines = body.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = "" if end else lines.pop() + held
        events: list[str] = []
        for line in lines:
            events += self._line(line)
        if len(self._rest) + self._size > EVENT_CHARS_MAX:
            raise BadStreamError(f"an event is longer than {EVENT_CHARS_MAX} characters")
        return events

    def _line(self, line: str) -> list[str]:
        if not line:
            return self._dispatch()
        field, _, value = line.removeprefix("\ufeff").partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" "))
            self._size += len(value)
        return []

    def _dispatch(self) -> list[str]:
        data, self._data, self._size = self._data, [], 0
        return ["\n".join(data)] if data else []
