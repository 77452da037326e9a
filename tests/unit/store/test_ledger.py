"""The account of a write budget in a drive's directory."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.budget import Account
from pagoda.core.errors import FormatError, TierError
from pagoda.store.ledger import LEDGER_NAME, Damaged, Ledger

ACCOUNT = Account(left_bytes=5, written_bytes=7, at_ms=1_790_000_000_000)


def test_an_account_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    """The last one counts; nobody else can read it; nothing else is left behind."""
    ledger = Ledger(tmp_path, tier="drive")
    assert ledger.read() is None
    ledger.keep(Account(left_bytes=1, written_bytes=1, at_ms=1))
    ledger.keep(ACCOUNT)
    assert Ledger(tmp_path, tier="drive").read() == ACCOUNT
    assert (tmp_path / LEDGER_NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [LEDGER_NAME]


def test_what_a_killed_process_left_half_written_is_overwritten(tmp_path: Path) -> None:
    """The new account never has the old one's name before it is whole."""
    ledger = Ledger(tmp_path, tier="drive")
    ledger.keep(ACCOUNT)
    (tmp_path / "budget.new").write_text('{"form')
    assert ledger.read() == ACCOUNT
    ledger.keep(ACCOUNT)
    assert [path.name for path in tmp_path.iterdir()] == [LEDGER_NAME]


def good() -> dict[str, object]:
    """What the file says."""
    return {
        "format": "pagoda-budget",
        "version": 1,
        "left_bytes": 5,
        "written_bytes": 7,
        "at_ms": 9,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"version": 0},
        {"version": True},
        {"version": "1"},
        {"left_bytes": -1},
        {"left_bytes": 1.5},
        {"written_bytes": None},
        {"at_ms": True},
        {"at_ms": 1 << 63},
        {"more": 1},
        {"more": "text"},
    ],
)
def test_fields_that_cannot_be_are_damage(tmp_path: Path, change: dict[str, object]) -> None:
    """None of them is guessed at."""
    (tmp_path / LEDGER_NAME).write_text(json.dumps(good()))
    assert Ledger(tmp_path, tier="drive").read() is not None
    (tmp_path / LEDGER_NAME).write_text(json.dumps(good() | change))
    with pytest.raises(Damaged):
        Ledger(tmp_path, tier="drive").read()


@given(st.data())
def test_no_missing_field_and_no_cut_passes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any part of the file, and any file without one of its fields, is damage."""
    directory = tmp_path_factory.mktemp("ledger")
    text = json.dumps(good())
    missing = data.draw(st.sampled_from(sorted(good())))
    less = json.dumps({name: value for name, value in good().items() if name != missing})
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    for bad in (less, cut):
        (directory / LEDGER_NAME).write_text(bad)
        with pytest.raises(Damaged):
            Ledger(directory, tier="drive").read()


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_a_crash(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    """Random bytes are damage, not an exception of another kind."""
    directory = tmp_path_factory.mktemp("ledger")
    (directory / LEDGER_NAME).write_bytes(text)
    with pytest.raises(Damaged):
        Ledger(directory, tier="drive").read()


def test_a_newer_version_is_refused_and_kept(tmp_path: Path) -> None:
    """A later Pagoda's account is not overwritten by an earlier one."""
    text = json.dumps(good() | {"version": 2})
    (tmp_path / LEDGER_NAME).write_text(text)
    with pytest.raises(FormatError, match="version 2"):
        Ledger(tmp_path, tier="drive").read()
    assert (tmp_path / LEDGER_NAME).read_text() == text


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A pipe must not make the start wait for a writer; a link leads to somebody else's file."""
    path = tmp_path / LEDGER_NAME
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (tmp_path / "theirs").write_text("words")
        path.symlink_to("theirs")
    else:
        path.mkdir()
    signal.alarm(10)
    try:
        with pytest.raises(TierError) as caught:
            Ledger(tmp_path, tier="drive").read()
    finally:
        signal.alarm(0)
    assert caught.value.remedy
