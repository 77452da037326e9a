"""Recordings: what a server is asked, written down without a word of it.

    engine's thread ── Ended ──> queue, bounded in blocks ──> recorder's thread ──> file

Serving never waits for the file. What does not fit the queue is left out and counted; a file that
takes no more (a full disk) ends the recording with one warning. Lines are appended whole, so that
a recording can be read while it is written. The format is `core.trace.recorded`'s.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from pagoda.core.errors import SettingsError
from pagoda.core.events import Ended, Event, Observer
from pagoda.core.trace.recorded import (
    SALT_BYTES,
    RecordedRequest,
    RecordingLines,
    begins_recording,
)

__all__ = ["Recorder"]

_log = logging.getLogger("pagoda.serve")
QUEUED_BLOCKS = 1 << 18  # names of blocks that wait to be written: some 20 MB
CLOSING_S = 5.0  # how long a stuck disk may hold up the end
_HEAD_BYTES = 4096  # of a file that is there, to tell what it is


class Recorder:
    """One recording.

    `path` is created with mode 0600. An older recording of that name is left as it is, and the
    new one gets a number before its suffix (`day.jsonl`, `day.2.jsonl`, …): its names could not be
    matched with the old ones'. Raises SettingsError for a file of another kind, and where none
    can be created. `clock` is the engine's.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._start_s = clock()
        self.path, self._file = _create(path)
        self._size_bytes = 0  # of whole lines
        self._lines: RecordingLines | None = None
        self._changed = threading.Condition()
        self._queue: deque[Ended] = deque()
        self._queued_blocks = 0
        self._closing = False
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="pagoda-record", daemon=True)
        self.written = 0
        self.left_out = 0

    def begin(self, block_tokens: int) -> None:
        """Write the first line; requests are recorded from now on."""
        self._lines = RecordingLines(
            salt=secrets.token_bytes(SALT_BYTES), block_tokens=block_tokens
        )
        _log.info("requests are recorded in %s", self.path)
        self._append(self._lines.header())
        self._thread.start()

    def observing(self, observer: Observer) -> Observer:
        """An observer that records what ends, and hands every event on."""

        def observe(event: Event) -> None:
            if isinstance(event, Ended):
                self._put(event)
            observer(event)

        return observe

    def close(self) -> None:
        """Write what waits, and end. A recording that never began leaves no file."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._lines is None:
            os.close(self._file)
            self.path.unlink(missing_ok=True)
            return
        self._thread.join(CLOSING_S)
        if self._thread.is_alive():
            _log.warning("%s takes no data; the recording's end is lost", self.path)
            return
        os.close(self._file)
        _log.info("%d requests recorded in %s", self.written, self.path)

    def _put(self, event: Ended) -> None:
        with self._changed:
            if self._failed or self._closing:
                return
            if self._queued_blocks + len(event.keys) > QUEUED_BLOCKS:
                if not self.left_out:
                    _log.warning("%s is too slow: some requests are not recorded", self.path)
                self.left_out += 1
                return
            self._queue.append(event)
            self._queued_blocks += len(event.keys)
            self._changed.notify()

    # The recorder's thread.

    def _run(self) -> None:
        for event in self._events():
            self._record(event)

    def _events(self) -> Iterator[Ended]:
        """What is to be written, as it comes, until the recording is closed or has failed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing or self._failed)
                if self._failed or not self._queue:
                    self._queue.clear()
                    return
                event = self._queue.popleft()
                self._queued_blocks -= len(event.keys)
            yield event

    def _record(self, event: Ended) -> None:
        assert self._lines is not None, "the thread runs once the recording has begun"
        line = self._lines.line(
            RecordedRequest(
                at_s=max(0.0, event.arrived_s - self._start_s),
                input_tokens=event.prompt_tokens,
                output_tokens=event.completion_tokens,
                keys=event.keys,
                hint=event.hint,
                end=event.reason,
            )
        )
        if self._append(line):
            self.written += 1

    def _append(self, line: str) -> bool:
        """Append a line, whole or not at all; the first that cannot be ends the recording."""
        data = memoryview(line.encode() + b"\n")
        size_bytes = self._size_bytes + len(data)
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._fail(error)
            return False
        self._size_bytes = size_bytes
        return True

    def _fail(self, error: OSError) -> None:
        with self._changed:
            self._failed = True
        _log.warning("%s: %s; recording stops, serving goes on", self.path, error.strerror or error)
        try:
            os.ftruncate(self._file, self._size_bytes)
        except OSError as again:
            _log.debug("%s keeps part of a line: %s", self.path, again)


def _create(path: Path) -> tuple[Path, int]:
    """A new file, at `path` or numbered beside it, and its descriptor."""
    path = path.expanduser()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    try:
        for number in count(1):
            free = path if number == 1 else path.with_suffix(f".{number}{path.suffix}")
            try:
                return free, os.open(free, flags, 0o600)
            except FileExistsError:
                _check_recording(free)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    raise AssertionError("counting has no end")


def _check_recording(path: Path) -> None:
    """Raises SettingsError for what is neither a recording nor one that never began."""
    if path.is_file():
        with path.open("rb") as file:
            head = file.readline(_HEAD_BYTES)
        if not head or begins_recording(head.decode(errors="replace")):
            return
    raise _unusable(path, "it is there, and is no recording")


def _unusable(path: Path, why: str) -> SettingsError:
    return SettingsError(
        f"cannot record in {path}: {why}",
        key="server.record",
        source="settings",
        remedy="name a new file in a directory that can be written to",
    )
