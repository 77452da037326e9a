"""Reading from many places of a slab's file: compiled and in Python, the same."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagoda.core import native
from pagoda.tiers.drive.file import SlabFile

_CONTENT = bytes(range(251)) * 40


@pytest.fixture(params=["compiled", "python"])
def file(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlabFile]:
    """A file with known content, read in one of the two ways."""
    if request.param == "python":
        monkeypatch.setattr(native, "TABLES", None)
    elif native.TABLES is None:
        pytest.skip("pagoda._native: not built")
    (tmp_path / "slab").write_bytes(_CONTENT)
    opened = SlabFile(tmp_path / "slab", "off")
    yield opened
    opened.close()


_end = len(_CONTENT)
_place = st.one_of(st.integers(0, _end), st.integers(_end - 900, _end + 500))
_pieces = st.lists(st.tuples(_place, st.integers(0, 900)), max_size=12)


@given(pieces=_pieces, chained=st.lists(st.booleans(), min_size=12, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_each_buffer_gets_what_lies_at_its_place(
    file: SlabFile, pieces: list[tuple[int, int]], chained: list[bool]
) -> None:
    """Behind each other or apart, in any order, across the end of the file and beyond it; what
    is not filled is left as it was."""
    offsets: list[int] = []
    for (offset, _), (_, before), joined in zip(pieces, [(0, 0), *pieces], chained, strict=False):
        offsets.append(offsets[-1] + before if joined and offsets else offset)
    buffers = [memoryview(bytearray(b"\xff" * length)) for _, length in pieces]
    counts = file.read_payloads(buffers, offsets)
    expected = [_CONTENT[at : at + len(into)] for at, into in zip(offsets, buffers, strict=True)]
    assert counts == list(map(len, expected))
    for buffer, found in zip(buffers, expected, strict=True):
        assert bytes(buffer) == found.ljust(len(buffer), b"\xff")


def test_more_pieces_than_the_system_takes_at_once_are_all_read(file: SlabFile) -> None:
    """IOV_MAX is 1,024 on Linux."""
    buffers = [memoryview(bytearray(3)) for _ in range(2500)]
    assert file.read_payloads(buffers, range(0, 7500, 3)) == [3] * 2500
    assert b"".join(map(bytes, buffers)) == _CONTENT[:7500]


def test_an_error_of_the_system_is_raised_with_its_number(file: SlabFile) -> None:
    """Here: a place that cannot be. Nothing else holds the buffer afterwards."""
    buffer = bytearray(8)
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)) as caught:
        file.read_payloads([memoryview(buffer)], [-8])
    assert caught.value.errno == errno.EINVAL
    del caught
    buffer.clear()


def test_the_compiled_call_refuses_what_it_cannot_take() -> None:
    """Unequal lists, read-only buffers, places that are no numbers."""
    if native.TABLES is None:
        pytest.skip("pagoda._native: not built")
    for wrong in (([bytearray(1)], []), ([b"x"], [0]), ([bytearray(1)], ["0"]), (7, [0])):
        with pytest.raises((ValueError, TypeError, BufferError)):
            native.TABLES.read_payloads(0, *wrong)
