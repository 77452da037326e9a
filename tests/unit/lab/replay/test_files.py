"""Files of traces: what is in them counts, not their names; faults name file and line."""

from __future__ import annotations

import gzip
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagoda.core.errors import TraceError
from pagoda.core.trace import Trace
from pagoda.lab.replay import files
from pagoda.lab.replay.files import read_trace

GOOD = ["0 600 3 0+2", "40 600 3 0 7"]


def write(path: Path, lines: list[str], *, packed: bool = False) -> Path:
    """A file of these lines."""
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_told_by_what_is_in_it(tmp_path: Path, packed: bool) -> None:
    """Neither compression nor format is taken from the name, which names the trace."""
    read = read_trace(write(tmp_path / "morning.log", GOOD, packed=packed))
    assert (read.format, read.trace.name, read.trace.block_tokens) == ("runs", "morning", 512)
    assert [request.prompt for request in read.trace.requests] == [(0, 1), (0, 2)]
    assert (read.bad, read.bad_count) == ([], 0)


def test_other_blocks_may_be_said(tmp_path: Path) -> None:
    """Who knows that a file has blocks of another size can say so."""
    path = write(tmp_path / "trace", ["0 600 3 0+3"])
    assert read_trace(path, block_tokens=256).trace.block_tokens == 256


def test_a_bad_line_ends_the_reading(tmp_path: Path) -> None:
    """The error names the file, the line and what is wrong."""
    path = write(tmp_path / "trace", [GOOD[0], "", "0 600 3 0+9"])
    with pytest.raises(TraceError, match=r"trace, line 3: 600 tokens are 2 blocks") as caught:
        read_trace(path)
    assert (caught.value.path, caught.value.line) == (str(path), 3)


@pytest.mark.parametrize("on_bad", ["fail", "skip"])
@pytest.mark.parametrize("lines", [1, 5, 1000])
def test_skipping_is_no_advice_for_another_file(
    tmp_path: Path, on_bad: files.OnBad, lines: int
) -> None:
    """A file without a line of a trace is refused either way: the remedy is to give a trace. Where
    a trace follows its bad first lines, the first is named, and skipping helps."""
    path = write(tmp_path / "other", ["# a heading"] * lines)
    with pytest.raises(TraceError, match="no known format") as caught:
        read_trace(path, on_bad=on_bad)
    assert "give a trace" in caught.value.remedy
    assert "skip" not in caught.value.remedy
    late = write(tmp_path / "late", ["# a heading", "# another", *GOOD])
    with pytest.raises(TraceError, match="late, line 1: of no known format") as told:
        read_trace(late)
    assert "--on-bad skip" in told.value.remedy
    assert len(read_trace(late, on_bad="skip").trace.requests) == 2


def test_bad_lines_can_be_skipped(tmp_path: Path) -> None:
    """All are counted, the first are kept, whatever they hold; good ones between are read."""
    path = tmp_path / "trace"
    bad = [b"\xff\xfe", b"0 600 3", b"{}", b"x" * 100] * 10
    good = [line.encode() for line in GOOD]
    path.write_bytes(b"\n".join([bad[0], good[0], *bad, good[1]]))
    read = read_trace(path, on_bad="skip")
    assert [request.at_s for request in read.trace.requests] == [0.0, 0.04]
    assert read.bad_count == 41
    assert len(read.bad) == files.SHOWN
    assert read.bad[0].line == 1
    assert "UTF-8" in read.bad[0].what


def test_a_line_that_is_too_long_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not held in memory, counts once, and the lines behind it are read."""
    monkeypatch.setattr(files, "LINE_BYTES", 32)
    path = write(tmp_path / "trace", ["9" * 500, "9" * 33, *GOOD, "9" * 64, "9" * 65])
    read = read_trace(path, on_bad="skip")
    assert len(read.trace.requests) == 2
    assert [bad.line for bad in read.bad] == [1, 2, 5, 6]


def test_a_file_of_no_format_is_given_up(tmp_path: Path) -> None:
    """Skipping does not read a foreign file to its end."""
    path = write(tmp_path / "trace", ["<html>"] * 1000)
    with pytest.raises(TraceError, match="no known format"):
        read_trace(path, on_bad="skip")


@pytest.mark.parametrize("on_bad", ["fail", "skip"])
def test_what_cannot_be_read_is_named(tmp_path: Path, on_bad: files.OnBad) -> None:
    """No file, a directory, nothing in it, a recording of another version, damaged compression:
    each names the file, skipping or not."""
    packed = write(tmp_path / "packed", GOOD * 500, packed=True).read_bytes()
    made = {
        "empty": (b"", "no request"),
        "blank": (b"\n\n", "no request"),
        "header": (b'{"pagoda_trace": 1, "block_tokens": 16}\n', "no request"),
        "newer": (b'{"pagoda_trace": 2, "block_tokens": 16}\n', "line 1: a recording of version 2"),
        "cut": (packed[:-9], "damaged"),
        "flipped": (packed[:30] + bytes([packed[30] ^ 255]) + packed[31:], "damaged"),
        "magic": (b"\x1f\x8b", "damaged"),
    }
    for name, (data, what) in made.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TraceError, match=what):
            read_trace(tmp_path / name, on_bad=on_bad)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read_trace(missing, on_bad=on_bad)


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    """Bytes of the file as it lies there, rising to all of them."""
    path = write(tmp_path / "trace", GOOD * 2000, packed=True)
    told: list[tuple[int, int]] = []
    read_trace(path, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert len(told) > 2
    assert told == sorted(told)
    assert told[-1] == (size, size)
    assert {total for _, total in told} == {size}


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    """What another program unpacks is read as it comes, though its length is not known."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    text = "0 600 3 0+2\n" * 1000
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(path.write_text, text)
        assert len(read_trace(path).trace.requests) == 1000
        assert writing.result() == len(text)


def test_examples_of_the_reference_can_be_read(tmp_path: Path) -> None:
    """Each format's lines in docs/reference/traces.md are lines of that format."""
    page = Path(__file__).parents[4] / "docs" / "reference" / "traces.md"
    found = []
    for kind, text in re.findall(r"```(text|json)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        path = write(tmp_path / kind, text.splitlines())
        found.append(read_trace(path).format)
    assert found == ["runs", "mooncake", "bailian", "agentic", "pagoda"]


@given(st.binary(max_size=200), st.booleans(), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_trace_or_a_named_fault(
    tmp_path: Path, data: bytes, packed: bool, headed: bool
) -> None:
    """Nothing in a file makes the reader fail otherwise."""
    path = tmp_path / "any"
    data = b"0 600 3 0+2\n" + data if headed else data
    path.write_bytes(gzip.compress(data) if packed else data)
    for on_bad in ("fail", "skip"):
        with suppress(TraceError):
            assert read_trace(path, on_bad=on_bad).trace.requests  # type: ignore[arg-type]


def shared(name: str) -> Path:
    """A public trace: beside the checkout, or in PAGODA_SHARED."""
    beside = Path(__file__).resolve().parents[4].parent / "shared"
    path = Path(os.environ.get("PAGODA_SHARED", beside)) / "data" / "traces" / name
    if not path.is_file():
        pytest.skip("public traces: not beside the checkout, nor in PAGODA_SHARED")
    return path


def block_hit_pct(trace: Trace) -> float:
    """How many of the prompts' blocks a cache without end has, prompts alone put there."""
    seen: set[int] = set()
    hits = blocks = 0
    for request in trace.requests:
        blocks += len(request.prompt)
        hits += sum(block in seen for block in request.prompt)
        seen.update(request.prompt)
    return 100 * hits / blocks


@pytest.mark.parametrize(
    ("name", "requests", "unique", "hit_pct"),
    [
        ("conversation_trace.runs.gz", 12_031, 182_790, 36.6),
        ("synthetic_trace.runs.gz", 3_993, 43_924, 64.0),
        # The table counts 46,258 ids; 16 of them stand behind two different prefixes.
        ("agentic_aiperf_300s_seed42.jsonl.gz", 3_629, 46_258 + 16, 93.4),
    ],
)
def test_public_traces_are_what_their_table_says(
    name: str, requests: int, unique: int, hit_pct: float
) -> None:
    """Requests, unique blocks and the bound of hits agree with the table beside the files."""
    trace = read_trace(shared(name)).trace
    assert len(trace.requests) == requests
    assert trace.unique_blocks() == unique
    assert round(block_hit_pct(trace), 1) == hit_pct
