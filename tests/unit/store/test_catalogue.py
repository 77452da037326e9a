"""The catalogue of namespaces: it survives, is never half there, and cannot be made to grow."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from pagoda.core.errors import FormatError, RequestError
from pagoda.core.holdings import SHARED, Ttl
from pagoda.core.identity import NamespaceId
from pagoda.store import catalogue
from pagoda.store import kept as kept_files
from pagoda.store.catalogue import NAME, Catalogue, Origin
from pagoda.store.kept import check_of


def name(number: int) -> NamespaceId:
    """Some namespace."""
    return NamespaceId(number.to_bytes(32, "little"))


T1 = "00000000000000aa"  # a tenant's id


def kept(directories: list[Path], ttl_s: float = 60) -> Catalogue:
    """A catalogue with a tenant and a time to live, written down."""
    one = Catalogue(directories)
    one.meet(name(1), Origin(T1, "g"))
    one.set_ttl(T1, ttl_s)
    one.set_ttl(None, 5)
    assert one.write(one.text())
    return one


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Origins and times to live, exactly; nothing is left to write."""
    before = kept([tmp_path])
    after = Catalogue([tmp_path])
    assert after.origin(name(1)) == Origin(T1, "g")
    assert (
        after.ttls() == before.ttls() == [Ttl(tenant=None, seconds=5), Ttl(tenant=T1, seconds=60)]
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
    alone.set_ttl(T1, 7)
    alone.write(alone.text())
    for order in (places, places[::-1]):
        assert Catalogue(order).ttl(name(1)) == 7
    both = Catalogue(places)
    both.write(both.text())
    assert Catalogue(places[1:]).ttl(name(1)) == 7


@pytest.mark.parametrize("damage", ["cut", "flip", "list", "empty", "number", "no content"])
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
        "number": "7",
        "no content": '{"version": 1}',
        "flip": text.replace("60", "61"),
        "list": "[]",
        "empty": "",
    }[damage]
    (places[0] / NAME).write_text(harm)
    assert Catalogue(places).ttl(name(1)) == 60
    assert Catalogue(places[:1]).ttls() == []
    assert "times to live" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"revision": "x"},
        {"namespaces": {"zz" * 32: [T1, "g"]}},
        {"namespaces": []},
        {"ttl_s": {"*": float("nan")}},
        {"ttl_s": {"*": -1}},
        {"ttl_s": {"*": "soon"}},
    ],
)
def test_content_that_cannot_be_is_damage(
    tmp_path: Path, change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Also when its check is right: anybody can compute one."""
    kept([tmp_path])
    content = json.loads((tmp_path / NAME).read_text())["content"] | change
    copy = {"version": 1, "check": check_of(content), "content": content}
    (tmp_path / NAME).write_text(json.dumps(copy))
    assert Catalogue([tmp_path]).ttls() == []
    assert "is damaged" in caplog.text


def test_a_newer_version_is_refused_and_kept(tmp_path: Path) -> None:
    """A later Pagoda's catalogue is not overwritten by an earlier one."""
    kept([tmp_path])
    text = json.dumps(json.loads((tmp_path / NAME).read_text()) | {"version": 9})
    (tmp_path / NAME).write_text(text)
    with pytest.raises(FormatError, match="version 9"):
        Catalogue([tmp_path])
    assert (tmp_path / NAME).read_text() == text


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A pipe must not make the start wait for a writer; a link leads to somebody else's file."""
    path = tmp_path / NAME
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
    opened = signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(10)
    try:
        with pytest.raises(FormatError, match=NAME):
            Catalogue([tmp_path])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, opened)


def _hangs(number: int, frame: object) -> None:
    raise AssertionError("the start waits for a pipe's writer")


@pytest.mark.parametrize("tenant", ["*", "", "unknown", "t1", "00000000000000AA", "SHARED"])
def test_a_time_to_live_is_set_for_tenants_only(tmp_path: Path, tenant: str) -> None:
    """One for a tenant called * would be everybody's after a restart."""
    one = Catalogue([tmp_path])
    with pytest.raises(RequestError, match="no tenant's id"):
        one.set_ttl(tenant, 5)
    assert not one.changed
    one.set_ttl(SHARED, 6)
    one.set_ttl(T1, 7)
    assert one.write(one.text())
    assert Catalogue([tmp_path]).ttls() == [
        Ttl(tenant=T1, seconds=7),
        Ttl(tenant=SHARED, seconds=6),
    ]


def test_a_copy_that_cannot_be_written_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are written; the caller hears of it; nothing half-written is left."""
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    one = kept(places)
    real = kept_files.os.fsync
    calls = iter([True])

    def fsync(handle: int) -> None:
        if next(calls, False):
            raise OSError(5, "Input/output error")
        real(handle)

    monkeypatch.setattr(kept_files.os, "fsync", fsync)
    one.set_ttl(T1, 9)
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
