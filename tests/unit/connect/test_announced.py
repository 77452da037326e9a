"""What routers believe: chunks that are announced, and taken back, also across restarts."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.connect import names
from pagoda.connect.announced import Announced
from pagoda.connect.names import NamesFile
from pagoda.connect.vllm.namespace import NAME_BYTES, key_of
from pagoda.core.identity import Key, NamespaceId
from pagoda.store.executor import Lane

_SPACE, _OTHER = NamespaceId(bytes(32)), NamespaceId(bytes([1]) * 32)
_A_ROUND_S = 1e9  # long enough for every chunk to be looked after


def _file(directory: Path, space: NamespaceId) -> NamesFile:
    return NamesFile(directory, space, engine="vllm", name_bytes=NAME_BYTES)


class AtOnce:
    """An executor that does everything when it is asked to."""

    def submit(self, lane: Lane, job: Callable[[], None]) -> None:
        del lane
        job()

    def wait(self, timeout_s: float) -> None:
        del timeout_s

    def close(self) -> None:
        """Nothing is left."""


class Router:
    """Chunks that are there, and what a router makes of what it is told."""

    def __init__(self, directory: Path) -> None:
        self.file = _file(directory, _SPACE)
        self.held: set[Key] = set()
        self.believed: set[bytes] = set()
        self.restart()

    def restart(self) -> None:
        """The engine ends and starts again; routers drop what they knew of it."""
        self.believed.clear()
        self.announced = Announced(_key, self.there, file=self.file, executor=AtOnce())
        while self.announced.untold:
            self.believed.update(self.announced.take_found())

    def there(self, keys: Sequence[Key]) -> list[bool]:
        return [key in self.held for key in keys]

    def store(self, names: Sequence[bytes]) -> None:
        self.held.update(map(_key, names))
        self.believed.update(self.announced.add(names))

    def drop(self, names: Sequence[bytes]) -> None:
        self.held.difference_update(map(_key, names))

    def look(self) -> None:
        self.announced.look(_A_ROUND_S, lambda: None)
        self.believed.difference_update(self.announced.take_gone())

    def truth(self) -> set[bytes]:
        return {_name(number) for number in range(300) if _key(_name(number)) in self.held}


def _name(number: int) -> bytes:
    return number.to_bytes(4, "big").rjust(NAME_BYTES, b"n")


def _key(name: bytes) -> Key:
    return key_of(_SPACE, name)


_some = st.lists(st.integers(0, 11).map(_name), max_size=6)
_steps = st.lists(st.tuples(st.sampled_from(["store", "drop", "look", "restart"]), _some))


@given(_steps)
@settings(max_examples=60, deadline=None)
def test_after_a_look_routers_believe_what_is_there(
    steps: list[tuple[str, list[bytes]]],
) -> None:
    """Whatever was stored, dropped and started again, in whatever order; a start alone tells what
    is there."""
    with tempfile.TemporaryDirectory() as directory:
        router = Router(Path(directory))
        for what, names in steps:
            match what:
                case "store" | "drop":
                    getattr(router, what)(names)
                case _:
                    getattr(router, what)()
                    assert router.believed == router.truth()
        router.look()
        assert router.believed == router.truth()


def test_many_are_looked_after_in_slices_with_a_breath_between_them(tmp_path: Path) -> None:
    """A round has all of them, and no slice has many; what is told at a start comes in parts."""
    router = Router(tmp_path)
    names = [_name(number) for number in range(300)]
    router.store(names)
    router.drop(names[::3])
    breaths: list[int] = []
    router.announced.look(_A_ROUND_S, lambda: breaths.append(len(router.announced)))
    assert len(breaths) >= 4
    assert sorted(router.announced.take_gone()) == sorted(names[::3])
    again = Announced(_key, router.there, file=router.file, executor=AtOnce())
    first = again.take_found()
    assert 0 < len(first) < 200 or not again.untold
    assert not router.announced.take_gone()


def test_a_file_of_names_grows_no_larger_than_what_is_there_deserves(tmp_path: Path) -> None:
    """Chunks come and go for long: names of those that went are dropped now and then."""
    router = Router(tmp_path)
    for turn in range(200):
        names = [_name(1000 * turn + number) for number in range(100)]
        router.store(names)
        router.drop(names)
        router.look()
    assert router.file.path.stat().st_size < 6000 * NAME_BYTES


def test_a_damaged_file_of_names_costs_announcements_and_no_more(tmp_path: Path) -> None:
    """A write that broke off, bytes of something else, a file of another namespace, no directory:
    what is there and named is told."""
    router = Router(tmp_path)
    router.store([_name(1), _name(2)])
    assert stat.S_IMODE(router.file.path.stat().st_mode) == 0o600
    content = router.file.path.read_bytes()
    router.file.path.write_bytes(content[:NAME_BYTES] + bytes(NAME_BYTES) + content[NAME_BYTES:-3])
    router.restart()
    assert router.believed == {_name(1)}
    assert router.file.read() == [_name(1)]
    assert _file(tmp_path, _OTHER).read() == []
    nowhere = _file(tmp_path / "gone", _SPACE)
    nowhere.append([_name(1)])
    nowhere.write([_name(1)])
    assert nowhere.read() == []


@given(left=st.binary(max_size=NAME_BYTES - 1), numbers=st.lists(st.integers(0, 9), max_size=5))
def test_what_a_broken_off_write_left_costs_no_later_name(left: bytes, numbers: list[int]) -> None:
    """A disk without space, a process that was killed: names that come after it are read."""
    with tempfile.TemporaryDirectory() as directory:
        file = _file(Path(directory), _SPACE)
        file.append([_name(1), _name(2)])
        with file.path.open("ab") as torn:
            torn.write(left)
        file.append([_name(number) for number in numbers])
        assert file.read() == [_name(n) for n in dict.fromkeys([1, 2, *numbers])]


def test_what_is_no_file_is_neither_waited_for_nor_followed(tmp_path: Path) -> None:
    """A pipe that nobody writes to or reads from, a link to somebody's file, a directory."""
    pipe, link, directory = (_file(tmp_path, NamespaceId(bytes([n]) * 32)) for n in (2, 3, 4))
    os.mkfifo(pipe.path)
    (tmp_path / "other").write_bytes(_name(7))
    link.path.symlink_to(tmp_path / "other")
    directory.path.mkdir()
    for file in (pipe, link, directory):
        assert file.read() == []
        file.append([_name(1)])
    assert (tmp_path / "other").read_bytes() == _name(7)


def test_no_more_is_read_than_many_blocks_need(tmp_path: Path) -> None:
    """A file of a terabyte, most of which is a hole, does not take the memory of one."""
    file = _file(tmp_path, _SPACE)
    file.append([_name(1)])
    with file.path.open("r+b") as content, pytest.MonkeyPatch.context() as patch:
        content.truncate(1 << 40)
        patch.setattr(names, "_MOST_BYTES", 3 * NAME_BYTES)
        assert file.read() == [_name(1), bytes(NAME_BYTES)]
