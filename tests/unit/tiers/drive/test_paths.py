"""What a drive's path may be: nothing is written where another thing lies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from drive_harness import rewrite_super, slab_of

from pagoda.core.errors import (
    FormatError,
    TierError,
    TierFault,
)
from pagoda.tiers.drive import DriveConfig, DriveTier, slab, superblock
from pagoda.tiers.drive.superblock import Layout


@pytest.mark.parametrize("name", [slab.SLAB_NAME, "lock"])
def test_a_pipe_in_a_file_s_place_is_refused_at_once(config: DriveConfig, name: str) -> None:
    """Opening a pipe named slab.pagoda waited for a writer that never came: the server neither
    started nor said why."""
    config.directory.mkdir()
    os.mkfifo(config.directory / name)
    signal.alarm(10)
    try:
        with pytest.raises(FormatError, match=name) as caught:
            DriveTier(config)
    finally:
        signal.alarm(0)
    assert caught.value.remedy


def test_a_link_to_a_slab_on_an_absent_disk_is_kept(config: DriveConfig) -> None:
    """The slab was a link to a disk that was not mounted yet: a new slab took the link's place,
    on the wrong disk, and the old blocks were out of reach for good."""
    config.directory.mkdir()
    slab_of(config).symlink_to(config.directory / "absent" / "slab")
    with pytest.raises(TierFault) as caught:
        DriveTier(config)
    assert caught.value.remedy
    assert slab_of(config).is_symlink()


def make_file(path: Path) -> None:
    """A file of somebody's."""
    path.write_text("precious")


def make_loop(path: Path) -> None:
    """A link that leads to itself."""
    path.symlink_to(path)


def make_device_link(path: Path) -> None:
    """A link to a device."""
    path.symlink_to("/dev/null")


def make_foreign_slab(path: Path) -> None:
    """A file that is no slab."""
    path.write_bytes(b"precious" * 1000)


def make_newer_slab(path: Path) -> None:
    """A slab of a format that this Pagoda does not know."""
    layout = Layout(slots=1, slot_bytes=8192, slab_id=bytes(16))
    path.write_bytes(superblock.pack(layout, created_ms=1))
    rewrite_super(path, 8, b"\x02\0\0\0")


Make = Callable[[Path], object]


def tree(root: Path) -> dict[str, bytes | None]:
    """Everything below a directory, and what the files hold."""
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(root.rglob("*"))}


@pytest.mark.parametrize("make_it", [make_file, os.mkfifo, make_loop, make_device_link])
def test_a_drive_path_that_is_no_directory_is_refused(config: DriveConfig, make_it: Make) -> None:
    """A file, a pipe, a link in a circle, a device: named, with a remedy, and left alone."""
    make_it(config.directory)
    before = tree(config.directory.parent)
    with pytest.raises(TierError, match="kv") as caught:
        DriveTier(config)
    assert caught.value.remedy
    assert tree(config.directory.parent) == before


@pytest.mark.parametrize(
    "make_it",
    [
        Path.mkdir,
        os.mkfifo,
        make_loop,
        make_device_link,
        make_file,
        make_foreign_slab,
        make_newer_slab,
    ],
)
def test_where_another_thing_is_the_slab_nothing_is_written(
    config: DriveConfig, make_it: Make
) -> None:
    """Not even the lock: the directory may be somebody else's."""
    config.directory.mkdir()
    make_it(slab_of(config))
    before = tree(config.directory.parent)
    with pytest.raises(TierError, match=slab.SLAB_NAME) as caught:
        DriveTier(config)
    assert caught.value.remedy
    assert tree(config.directory.parent) == before
