"""The superblock and its copy: damage is mended or refused, and nothing foreign is touched."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from drive_harness import make, rewrite_super, slab_of

from pagoda.core.errors import (
    CapacityError,
    FormatError,
)
from pagoda.testing.conformance import header_of, put
from pagoda.tiers.drive import DriveConfig, DriveTier, slab, superblock
from pagoda.tiers.drive.superblock import Layout


def test_a_foreign_file_is_refused_and_kept(config: DriveConfig) -> None:
    """A file that is no slab is not written to."""
    config.directory.mkdir()
    slab_of(config).write_bytes(b"precious" * 1000)
    with pytest.raises(FormatError, match="not a Pagoda slab"):
        DriveTier(config)
    assert slab_of(config).read_bytes() == b"precious" * 1000


def test_a_newer_version_is_refused_and_kept(config: DriveConfig) -> None:
    """A slab of a later format is not misread, and not written to."""
    path = make(config)
    rewrite_super(path, 8, b"\x02\0\0\0")
    before = path.read_bytes()
    with pytest.raises(FormatError, match="version 2"):
        DriveTier(config)
    assert path.read_bytes() == before


DAMAGED = [0, 8, 12, 16, 24, 32, 40, 48, 100, 4090]


def flip(path: Path, offset: int) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


@pytest.mark.parametrize("offset", DAMAGED)
def test_a_damaged_superblock_is_read_from_its_copy(config: DriveConfig, offset: int) -> None:
    """One flipped bit in the first page once refused the start of a server: an outage for a
    cache. Nothing is lost, and the page is whole again afterwards."""
    tier = DriveTier(config)
    put(tier, [3], [7])
    tier.close()
    path = slab_of(config)
    whole = path.read_bytes()
    flip(path, offset)
    again = DriveTier(config)
    assert dict(again.scan()) == {3: header_of(7)}
    again.close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("offset", DAMAGED)
def test_a_damaged_copy_is_written_anew(config: DriveConfig, offset: int) -> None:
    """The copy is only good for something while it is whole."""
    path = make(config)
    whole = path.read_bytes()
    flip(path, slab.read_layout(path).copy_offset + offset)
    DriveTier(config).close()
    assert path.read_bytes() == whole


def test_two_damaged_superblocks_are_refused_and_kept(config: DriveConfig) -> None:
    """Without a sound superblock nobody knows where anything lies."""
    path = make(config)
    for place in (0, slab.read_layout(path).copy_offset):
        flip(path, place + 16)
    before = path.read_bytes()
    with pytest.raises(FormatError, match="damaged superblock"):
        DriveTier(config)
    assert path.read_bytes() == before


@pytest.mark.parametrize("slots", [1, 100, 16_352, 16_353, 16_368, 16_369, 40_000])
def test_the_copy_has_a_page_of_its_own(slots: int) -> None:
    """Table, copy and payloads never overlap, whatever the table's size."""
    layout = Layout(slots=slots, slot_bytes=4096, slab_id=bytes(16))
    assert layout.header_at(slots) <= layout.copy_offset
    assert layout.copy_offset + 4096 == layout.payload_offset
    assert layout.payload_offset % (4 << 20) == 0
    assert superblock.unpack(superblock.pack(layout, created_ms=1)) == layout


def test_a_slab_cut_short_is_refused(config: DriveConfig) -> None:
    """A file that lost its end is not read past it."""
    path = make(config)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(FormatError, match="cut short"):
        DriveTier(config)


@pytest.mark.parametrize("change", [{"capacity_bytes": 6 << 20}, {"slot_bytes": 4096}])
def test_other_sizes_than_the_slab_has_are_refused(
    config: DriveConfig, change: dict[str, int]
) -> None:
    """Changed settings neither shrink nor reuse a slab silently."""
    make(config)
    with pytest.raises(CapacityError, match="these settings ask") as caught:
        DriveTier(replace(config, **change))
    assert "drive.capacity" in caught.value.remedy


def test_an_interrupted_creation_is_started_anew(config: DriveConfig) -> None:
    """A half-made slab has a temporary name and is replaced."""
    config.directory.mkdir()
    (config.directory / "slab.pagoda.new").write_bytes(b"half")
    DriveTier(config).close()
    assert list(config.directory.glob("*.new")) == []
