"""Images of power cuts: what a drive with a volatile cache may be left with."""

from __future__ import annotations

import random
from pathlib import Path

from pagoda.lab.crash.cuts import Kind, Medium
from pagoda.lab.crash.tap import Op

SIZE = 16384
FILE = Path("slab")
SYNC = Op(FILE)


def write(place: int, letter: bytes, size_bytes: int = 4096) -> Op:
    """A write of one letter, over and over."""
    return Op(FILE, place, letter * size_bytes)


def images(ops: list[Op], *, seed: int = 0, scrambled: int = 50) -> dict[Kind, list[bytes]]:
    """What a cut after these operations may leave."""
    medium = Medium(SIZE)
    for op in ops:
        medium.do(op)
    found: dict[Kind, list[bytes]] = {}
    for image in medium.images(random.Random(seed), scrambled=scrambled):
        found.setdefault(image.kind, []).append(image.data)
    return found


def test_what_was_synced_is_in_every_image() -> None:
    """No cut takes back what a sync had promised."""
    found = images([write(0, b"a"), write(4096, b"b"), SYNC, write(8192, b"c")])
    for image in (image for kind in found.values() for image in kind):
        assert image[:8192] == b"a" * 4096 + b"b" * 4096
        assert image[12288:] == bytes(4096)


def test_after_a_sync_there_is_one_image() -> None:
    """Nothing is left to be lost."""
    found = images([write(0, b"a"), SYNC])
    assert list(found) == [Kind.WRITTEN]
    assert found[Kind.WRITTEN] == [b"a" * 4096 + bytes(12288)]


def test_a_later_write_may_be_there_without_an_earlier_one() -> None:
    """Pages reach the medium in any order: every part of three writes is seen."""
    found = images([write(0, b"a"), write(4096, b"b"), write(8192, b"c")])[Kind.PAGES]
    parts = {bytes(image[place] for place in (0, 4096, 8192)) for image in found}
    assert len(parts) == 8
    assert all(image[place : place + 4096].count(image[place]) == 4096
               for image in found for place in (0, 4096, 8192))  # fmt: skip


def test_of_a_page_written_twice_any_content_may_be_there() -> None:
    """The one before, the first and the second."""
    found = images([write(0, b"x"), SYNC, write(0, b"a"), write(0, b"b")])
    assert {image[:1] for image in found[Kind.PAGES]} == {b"x", b"a", b"b"}
    assert found[Kind.LOST] == [b"x" * 4096 + bytes(12288)]
    assert found[Kind.WRITTEN] == [b"b" * 4096 + bytes(12288)]


def test_a_page_may_hold_some_sectors_and_a_sector_may_be_torn() -> None:
    """One write of a page is seen in parts that end within it, some within a sector."""
    found = images([write(0, b"a")], scrambled=200)[Kind.SECTORS]
    assert any(0 < image[:4096].count(b"a") < 4096 for image in found)
    sectors = [image[at : at + 512] for image in found for at in range(0, 4096, 512)]
    assert any(0 < sector.count(b"a") < 512 for sector in sectors)


def test_a_small_write_leaves_its_neighbours_alone() -> None:
    """Headers share a sector: a cut in the write of one keeps the other's bytes."""
    ops = [write(0, b"n", 256), SYNC, write(256, b"h", 256)]
    for kind in images(ops, scrambled=100).values():
        assert all(image[:256] == b"n" * 256 for image in kind)


def test_the_last_write_is_torn_within() -> None:
    """Of the last write a part is there, of those before all."""
    torn = images([write(0, b"a"), write(4096, b"b")])[Kind.TORN][0]
    assert torn[:4096] == b"a" * 4096
    count = torn.count(b"b")
    assert torn[4096:] == b"b" * count + bytes(12288 - count)
    assert count < 4096
