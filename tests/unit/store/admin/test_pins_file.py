"""The file of pins: what a restart finds of them, damaged or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from admin_harness import AdminHarness

from pagoda.core.errors import FormatError
from pagoda.core.pins import PinWish
from pagoda.store.kept import read_content, text_of
from pagoda.store.pins_file import NAME, PinsFile


def test_a_damaged_file_is_told_put_aside_and_written_anew(
    admin: AdminHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """The store starts; what was there is kept for whoever can make sense of it."""
    admin.pin(1)
    path = admin.directory / NAME
    damaged = path.read_text().replace('"owner": "a"', '"owner": "b"')
    path.write_text(damaged)
    admin.open()
    assert "is damaged" in caplog.text
    assert admin.admin.pins.all() == []
    assert path.read_text() == damaged, "nothing is written for having been read"
    admin.pin(2)
    assert path.with_suffix(".json.damaged").read_text() == damaged
    admin.open()
    assert len(admin.admin.pins.all()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"until_ms": 10**18},
        {"until_ms": 1.5},
        {"budget": float("nan")},
        {"budget": 2},
        {"keys": ""},
        {"keys": "AAAA"},
        {"keys": "not base64"},
        {"namespace": "00"},
        {"owner": 5},
        {"tiers": [5]},
        {"more": 1},
    ],
)
def test_entries_that_cannot_be_are_damage(
    tmp_path: Path, change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the check is right: anybody can compute one."""
    harness = AdminHarness(tmp_path)
    harness.pin(1)
    content = read_content(tmp_path / NAME, version=1)
    assert content is not None
    content["pins"][0] |= change
    (tmp_path / NAME).write_text(text_of(content, version=1))
    assert PinsFile([tmp_path]).pins == []
    assert "is damaged" in caplog.text


@pytest.mark.parametrize("revision", [float("inf"), float("nan"), None, "three"])
def test_a_revision_that_cannot_be_is_damage(
    tmp_path: Path, revision: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A server starts beside it."""
    content = {"revision": revision, "pins": []}
    (tmp_path / NAME).write_text(text_of(content, version=1))
    assert PinsFile([tmp_path]).pins == []
    assert "is damaged" in caplog.text


def test_a_newer_file_is_refused_and_kept(admin: AdminHarness) -> None:
    """A later Pagoda's pins are not overwritten by an earlier one."""
    admin.pin(1)
    path = admin.directory / NAME
    text = json.dumps(json.loads(path.read_text()) | {"version": 9})
    path.write_text(text)
    with pytest.raises(FormatError, match="version 9"):
        PinsFile([admin.directory])
    assert path.read_text() == text


def test_of_several_drives_the_newest_copy_counts(tmp_path: Path) -> None:
    """One drive that takes the file is enough to survive; a drive that was away has an old one."""
    harness = AdminHarness(tmp_path)
    harness.pin(1)
    old, gone = tmp_path / "old", tmp_path / "gone"
    old.mkdir()
    (old / NAME).write_text((tmp_path / NAME).read_text())
    harness.pin(2)
    for order in ([tmp_path, old], [old, tmp_path]):
        found = PinsFile(order)
        assert len(found.pins) == 2
    assert PinsFile([tmp_path, gone]).write(found.text(found.pins))
    assert not PinsFile([gone]).write(found.text(found.pins))
    assert not PinsFile([]).write(found.text(found.pins))


def test_a_pin_that_cannot_be_written_down_holds_and_says_so(tmp_path: Path) -> None:
    """It ends with the process."""
    harness = AdminHarness(tmp_path / "nowhere")
    told: list[bool] = []
    harness.admin.pin(harness.tokens(1), "", PinWish(owner="a"), told.append)
    harness.settle()
    assert told == [False]
    (status,) = harness.admin.pins.all()
    assert not status.durable


def test_a_pin_is_durable_with_the_write_that_has_it(admin: AdminHarness) -> None:
    """Not with one that was on its way when it came."""
    told: list[tuple[str, bool]] = []
    ids = []
    for first, owner in ((1, "a"), (2, "b")):
        ids.append(
            admin.admin.pin(
                admin.tokens(first),
                "",
                PinWish(owner=owner),
                lambda survives, owner=owner: told.append((owner, survives)),
            )
        )
        admin.admin.poll()
    assert admin.executor.step()
    admin.store.poll()
    assert told == [("a", True)]
    assert [one.durable for one in admin.admin.pins.all()] == [True, False]
    admin.settle()
    assert told == [("a", True), ("b", True)]
    assert [one.id for one in PinsFile([admin.directory]).pins] == ids
