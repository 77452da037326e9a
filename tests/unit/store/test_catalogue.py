"""The catalogue of namespaces: it survives, is never half there, and cannot be made to grow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.core.holdings import Ttl
from pagoda.core.identity import NamespaceId
from pagoda.store import catalogue
from pagoda.store.catalogue import NAME, Catalogue, Origin


def name(number: int) -> NamespaceId:
    """Some namespace."""
    return NamespaceId(number.to_bytes(32, "little"))


def kept(directories: list[Path], ttl_s: float = 60) -> Catalogue:
    """A catalogue with a tenant and a time to live, written down."""
    one = Catalogue(directories)
    one.meet(name(1), Origin("t1", "g"))
    one.set_ttl("t1", ttl_s)
    one.set_ttl(None, 5)
    assert one.write(one.text())
    return one


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Origins and times to live, exactly; nothing is left to write."""
    before = kept([tmp_path])
    after = Catalogue([tmp_path])
    assert after.origin(name(1)) == Origin("t1", "g")
    assert (
        after.ttls() == before.ttls() == [Ttl(tenant=None, seconds=5), Ttl(tenant="t1", seconds=60)]
    )
    assert not after.changed
    assert (after.ttl(name(1)), after.ttl(name(2))) == (60, 5)


def test_of_several_drives_the_newest_copy_counts(tmp_path: Path) -> None:
    """A drive that was away comes back with an old one, and is given the new one."""
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    kept(places)
    alone = Catalogue(places[:1])
    alone.set_ttl("t1", 7)
    alone.write(alone.text())
    for order in (places, places[::-1]):
        assert Catalogue(order).ttl(name(1)) == 7
    both = Catalogue(places)
    both.write(both.text())
    assert Catalogue(places[1:]).ttl(name(1)) == 7


@pytest.mark.parametrize("damage", ["cut", "version", "flip", "list", "empty"])
def test_a_damaged_copy_is_passed_over_and_told(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The other drive's counts; alone, the catalogue begins anew and says what is lost."""
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    kept(places)
    text = (places[0] / NAME).read_text()
    harm = {
        "cut": text[:40],
        "version": json.dumps(json.loads(text) | {"version": 9}),
        "flip": text.replace("60", "61"),
        "list": "[]",
        "empty": "",
    }[damage]
    (places[0] / NAME).write_text(harm)
    assert Catalogue(places).ttl(name(1)) == 60
    assert Catalogue(places[:1]).ttls() == []
    assert "times to live" in caplog.text


def test_a_copy_that_cannot_be_written_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are written; the caller hears of it; nothing half-written is left."""
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    one = kept(places)
    real = catalogue.os.fsync
    calls = iter([True])

    def fsync(handle: int) -> None:
        if next(calls, False):
            raise OSError(5, "Input/output error")
        real(handle)

    monkeypatch.setattr(catalogue.os, "fsync", fsync)
    one.set_ttl("t1", 9)
    assert not one.write(one.text())
    assert [Catalogue([place]).ttl(name(1)) for place in places] == [60, 9]
    assert [path.name for path in places[0].iterdir()] == [NAME]


def test_salts_that_clients_choose_cannot_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the namespace that was met longest ago is forgotten."""
    monkeypatch.setattr(catalogue, "_LIMIT_ENTRIES", 3)
    one = Catalogue([])
    for number in (1, 2, 3, 1, 4):
        one.meet(name(number), Origin(f"t{number}", "g"))
    assert [one.origin(name(number)) is None for number in (1, 2, 3, 4)] == [
        False,
        True,
        False,
        False,
    ]


def test_only_what_is_held_or_served_is_retained() -> None:
    """Namespaces of old weights go with their last block."""
    one = Catalogue([])
    one.meet(name(1), Origin("t", "old"))
    one.meet(name(2), Origin("t", "old"))
    one.meet(name(3), Origin("t", "new"))
    one.retain([name(1)], "new")
    assert one.of_tenant("t") == {name(1), name(3)}


def test_meeting_a_known_namespace_again_is_no_change() -> None:
    """Requests do not write to a drive."""
    one = Catalogue([])
    one.meet(name(1), Origin("t", "g"))
    one.text()
    one.meet(name(1), Origin("t", "g"))
    assert not one.changed
