"""One owner at a time: the lock of a drive's directory."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from drive_harness import make, slab_of

from pagoda.core.errors import (
    CapacityError,
    DirectoryLocked,
    FormatError,
    TierFault,
)
from pagoda.testing.conformance import header_of, put
from pagoda.tiers.drive import DriveConfig, DriveTier
from pagoda.tiers.drive.file import SlabFile


def test_a_deleted_lock_file_lets_nobody_in(config: DriveConfig) -> None:
    """Somebody tidied up and removed `lock` beside a running engine: a second one made its own
    and wrote into the same slots."""
    first = DriveTier(config)
    (config.directory / "lock").unlink()
    with pytest.raises(DirectoryLocked, match="lock file was deleted") as caught:
        DriveTier(config)
    assert caught.value.remedy
    put(first, [0], [1])
    first.close()
    again = DriveTier(config)
    assert dict(again.scan()) == {0: header_of(1)}
    again.close()


def test_two_engines_cannot_share_a_directory(config: DriveConfig) -> None:
    """The second gets an error that names the first."""
    first = DriveTier(config)
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()}"):
        DriveTier(config)
    first.close()
    DriveTier(config).close()


def test_a_killed_owner_does_not_block_its_directory(config: DriveConfig) -> None:
    """A lock dies with its process, although the file still names the dead owner."""
    program = (
        "import sys, time; from pathlib import Path;"
        "from pagoda.tiers.drive import DriveConfig, DriveTier;"
        "DriveTier(DriveConfig(directory=Path(sys.argv[1]), capacity_bytes=5 << 20,"
        " slot_bytes=8192, free_floor_bytes=0)); print('open', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(config.directory)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    with pytest.raises(DirectoryLocked, match=f"process {child.pid}"):
        DriveTier(config)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert json.loads((config.directory / "lock").read_text())["pid"] == child.pid
    DriveTier(config).close()


def test_a_failed_opening_gives_the_lock_back(config: DriveConfig) -> None:
    """After an error the directory is free for a corrected try."""
    make(config)
    with pytest.raises(CapacityError):
        DriveTier(replace(config, capacity_bytes=6 << 20))
    DriveTier(config).close()


@pytest.mark.parametrize("link", [False, True])
def test_a_file_called_lock_that_is_not_ours_is_kept(config: DriveConfig, *, link: bool) -> None:
    """Somebody named a directory with a file `lock` of their own, or one with a link of that
    name to another file, as drive.path: the first start emptied it and wrote its process id."""
    config.directory.mkdir()
    lock = config.directory / "lock"
    precious = config.directory / "notes" if link else lock
    precious.write_text("precious")
    if link:
        lock.symlink_to(precious)
    with pytest.raises((FormatError, TierFault), match="lock") as caught:
        DriveTier(config)
    assert "path" in caught.value.remedy
    assert precious.read_text() == "precious"
    assert not slab_of(config).exists()


def test_a_lock_that_a_power_cut_left_as_zeros_is_taken_over(config: DriveConfig) -> None:
    """The signature's bytes may not have reached the disk when its length had."""
    make(config)
    lock = config.directory / "lock"
    lock.write_bytes(bytes(50))
    tier = DriveTier(config)
    assert json.loads(lock.read_text())["pid"] == os.getpid()
    tier.close()


class DyingFile(SlabFile):
    """A slab on a drive whose syncs fail."""

    def sync(self) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_drive_that_dies_before_its_end_still_gives_its_lock_back(config: DriveConfig) -> None:
    """The last sync failed, the error is told, and the descriptors and the lock used to stay
    with the process: nobody could open the directory again."""
    make(config)
    drive = DriveTier(config, opener=DyingFile)
    assert len(open_files(config.directory)) == 3
    with pytest.raises(TierFault) as caught:
        drive.close()
    assert caught.value.remedy
    assert open_files(config.directory) == []
    DriveTier(config).close()


def open_files(directory: Path) -> list[str]:
    """What this process has open in a directory."""
    fds = list(Path("/proc/self/fd").iterdir())
    targets = [str(fd.readlink()) for fd in fds if os.path.lexists(fd)]
    return [target for target in targets if target.startswith(str(directory.resolve()))]


def test_a_file_system_without_locks_is_not_called_somebody_s(
    config: DriveConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems refuse `flock`: the error said that another engine was running."""

    def fail(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = open_files(config.directory)
    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.raises(TierFault, match="lock") as caught:
        DriveTier(config)
    assert caught.value.remedy
    assert open_files(config.directory) == before
