"""Files of traces: opened, told apart by what is in them, read line by line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import IO, Literal

from pagoda.core.errors import TraceError
from pagoda.core.trace import Codec, Malformed, Trace, Unreadable, detect

LINE_BYTES = 16 << 20  # a longer line is malformed
SHOWN = 20  # bad lines that are kept; all are counted
SEARCHED = 100  # bad lines at the start, after which a file is of no known format
GZIP = b"\x1f\x8b"
KINDS = (
    "give a trace: .runs, JSON lines of Mooncake, Bailian or agents, or a recording; if its blocks "
    "have another size, say --block-tokens"
)
PROGRESS_LINES = 256  # between two reports

Lines = BufferedReader | gzip.GzipFile
Progress = Callable[[int, int], None]  # bytes read, bytes in all (0 if that is not known)
OnBad = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was skipped; lines count from 1."""

    line: int
    what: str


@dataclass(slots=True)
class ReadTrace:
    """A trace as it was read. Of the skipped lines all are counted, the first are kept."""

    trace: Trace
    format: str
    bad: list[BadLine] = field(default_factory=list)
    bad_count: int = 0


def read_trace(
    path: Path | str,
    *,
    on_bad: OnBad = "fail",
    block_tokens: int | None = None,
    progress: Progress | None = None,
) -> ReadTrace:
    """Read a trace of any known format, plain or compressed with gzip.

    A malformed line ends the reading, or is skipped and counted. `block_tokens` is the size of
    the file's blocks where it is not its format's own and the file does not say. Raises
    TraceError, which names file and line, also for a file that has no request at all.
    """
    reader = _Reader(Path(path), on_bad, block_tokens)
    reader.read(progress or _silent)
    return reader.result()


class _Reader:
    """One reading of one file."""

    def __init__(self, path: Path, on_bad: OnBad, block_tokens: int | None) -> None:
        self._path = path
        self._on_bad = on_bad
        self._block_tokens = block_tokens
        self._codec: Codec | None = None
        self._bad: list[BadLine] = []
        self._bad_count = 0
        self._line = 0

    def read(self, progress: Progress) -> None:
        with self._opened() as (raw, text):
            total = self._path.stat().st_size
            for line in _lines(text):
                self._line += 1
                self._take(line)
                if total and self._line % PROGRESS_LINES == 0:
                    progress(raw.tell(), total)
            progress(total, total)

    def result(self) -> ReadTrace:
        requests = self._codec.requests() if self._codec else []
        if self._codec is None and self._bad:
            first = self._bad[0]
            raise self._error(first.what, first.line, remedy=KINDS)
        if not self._codec or not requests:
            raise self._error("there is no request in it", remedy=KINDS)
        trace = Trace(
            name=self._path.name.split(".")[0],
            block_tokens=self._codec.block_tokens,
            requests=requests,
        )
        return ReadTrace(trace, self._codec.format, self._bad, self._bad_count)

    @contextmanager
    def _opened(self) -> Iterator[tuple[IO[bytes], Lines]]:
        """The file as it lies there, and what is in it. Errors of either become TraceError."""
        try:
            with self._path.open("rb") as raw:
                packed = raw.peek(2)[:2] == GZIP
                yield raw, gzip.GzipFile(fileobj=raw) if packed else raw
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise self._error(f"the compressed file is damaged: {error}", self._line + 1) from error
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror or error}") from error

    def _take(self, raw: bytes) -> None:
        try:
            line = _text(raw)
            if not line:
                return
            codec = self._codec or detect(line, block_tokens=self._block_tokens)
            codec.take(line)
            self._codec = codec
            self._refuse_bad()
        except Malformed as error:
            self._reject(str(error))
        except Unreadable as error:
            raise self._error(str(error), self._line) from error

    def _reject(self, what: str) -> None:
        self._bad_count += 1
        if len(self._bad) < SHOWN:
            self._bad.append(BadLine(self._line, what))
        if self._codec is not None:
            self._refuse_bad()
        elif self._bad_count >= SEARCHED:
            first = self._bad[0]
            said = f"{first.what} (and the next {SEARCHED - 1} lines are no better)"
            raise self._error(said, first.line, remedy=KINDS)

    def _refuse_bad(self) -> None:
        """A bad line ends the reading only where the file is known to be a trace: skipping it is
        no advice for another file."""
        if self._on_bad == "fail" and self._bad:
            first = self._bad[0]
            remedy = "or skip such lines with --on-bad skip"
            raise self._error(first.what, first.line, remedy=remedy)

    def _error(self, what: str, line: int | None = None, *, remedy: str = "") -> TraceError:
        where = f"{self._path}, line {line}" if line else str(self._path)
        return TraceError(f"{where}: {what}", path=str(self._path), line=line, remedy=remedy)


def _lines(file: Lines) -> Iterator[bytes]:
    """Lines; of one that is too long only so much that it shows."""
    while line := file.readline(LINE_BYTES + 1):
        yield line
        while len(line) > LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(LINE_BYTES + 1)


def _text(raw: bytes) -> str:
    """A line without its end. Raises Malformed if it is too long, or no text."""
    if len(raw) > LINE_BYTES:
        raise Malformed(f"longer than {LINE_BYTES} bytes")
    try:
        return raw.decode().strip()
    except UnicodeDecodeError as error:
        raise Malformed(f"no UTF-8: {error.reason} at byte {error.start}") from error


def _silent(done: int, total: int) -> None:
    del done, total
