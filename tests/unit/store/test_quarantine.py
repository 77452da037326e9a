"""Quarantine: what is told of it, and that it survives a restart."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pagoda.core.errors import FormatError
from pagoda.core.events import Barred, Event, Unbarred
from pagoda.core.identity import NamespaceId
from pagoda.store import kept
from pagoda.store.executor import Runtime
from pagoda.store.orders import Orders
from pagoda.store.quarantine import NAME, VERSION, Entry, Quarantine
from pagoda.testing.executor import SteppedExecutor

ONE, OTHER = NamespaceId(b"\x01" * 32), NamespaceId(b"\x02" * 32)


def written(quarantine: Quarantine) -> None:
    """Let it write what has changed."""
    executor = SteppedExecutor(random.Random(0))
    orders = Orders(Runtime(executor=executor))
    quarantine.poll(orders)
    while executor.step():
        orders.take_in()
        quarantine.poll(orders)


@pytest.fixture
def drives(tmp_path: Path) -> list[Path]:
    """Two drives' directories."""
    found = [tmp_path / "a", tmp_path / "b"]
    for place in found:
        place.mkdir()
    return found


def test_it_survives_a_restart_and_ends_when_lifted(drives: list[Path]) -> None:
    """What was added is found again, with why, until it is lifted; both are told."""
    first = Quarantine(drives)
    events: list[Event] = []
    first.tell(events.append)
    first.add(ONE, Entry(5, "because"))
    first.add(ONE, Entry(6, "again"))
    first.add(OTHER, Entry(7, "as well"))
    assert first.take_news() == [ONE, OTHER]
    assert first.take_news() == []
    assert first.lift(OTHER)
    assert not first.lift(OTHER)
    written(first)
    assert [type(event) for event in events] == [Barred, Barred, Unbarred]
    second = Quarantine(drives)
    assert second.entries() == {ONE: Entry(5, "because")}
    assert second.bars(ONE)
    assert not second.bars(OTHER)
    events.clear()
    second.tell(events.append)
    assert events == [Barred(namespace=ONE.hex(), since_s=5, detail="because")]
    second.lift(ONE)
    second.close()
    assert Quarantine(drives).count == 0


def test_the_newest_copy_counts_and_a_damaged_one_is_told(
    drives: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A drive that was away has an older copy; one whose copy is damaged has none."""
    both = Quarantine(drives)
    both.add(ONE, Entry(5, "because"))
    both.close()
    later = Quarantine(drives[1:])
    later.add(OTHER, Entry(9, "later"))
    later.close()
    assert set(Quarantine(drives).entries()) == {ONE, OTHER}
    place = drives[1] / NAME
    place.write_text(place.read_text().replace("later", "earlier"))
    assert set(Quarantine(drives).entries()) == {ONE}
    assert str(place) in caplog.text


def test_a_newer_file_is_refused_and_kept(drives: list[Path]) -> None:
    """What a later Pagoda wrote is not served as if nothing were in quarantine."""
    place = drives[0] / NAME
    place.write_text(kept.text_of({}, version=VERSION + 1))
    before = place.read_bytes()
    with pytest.raises(FormatError, match=str(VERSION + 1)):
        Quarantine(drives)
    assert place.read_bytes() == before


def test_a_drive_that_cannot_be_written_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are written all the same."""
    there = tmp_path / "there"
    there.mkdir()
    quarantine = Quarantine([tmp_path / "gone", there])
    quarantine.add(ONE, Entry(5, "because"))
    written(quarantine)
    assert "gone" in caplog.text
    assert Quarantine([there]).bars(ONE)
