"""The drive's own promises: locks, format, capacity, alignment, errors."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pagoda.core.errors import (
    CapacityError,
    DirectoryLocked,
    FormatError,
    TierError,
    TierFault,
    TierFull,
    TierReadOnly,
)
from pagoda.seal.digest import digest
from pagoda.seal.header import HEADER_BYTES
from pagoda.testing.conformance import header_of, payload_of, put
from pagoda.tiers.drive import DriveConfig, DriveTier, slab, superblock
from pagoda.tiers.drive.file import SlabFile
from pagoda.tiers.drive.oserrors import typed_errors
from pagoda.tiers.drive.superblock import Layout


@pytest.fixture
def config(tmp_path: Path) -> DriveConfig:
    """A small drive."""
    return DriveConfig(
        directory=tmp_path / "kv", capacity_bytes=5 << 20, slot_bytes=8192, free_floor_bytes=0
    )


def slab_of(config: DriveConfig) -> Path:
    """The slab's file."""
    return config.directory / slab.SLAB_NAME


def make(config: DriveConfig) -> Path:
    """Create a slab and close it."""
    DriveTier(config).close()
    return slab_of(config)


def rewrite_super(path: Path, offset: int, value: bytes) -> None:
    """Change a superblock and give it a right digest again."""
    data = bytearray(path.read_bytes()[:4096])
    data[offset : offset + len(value)] = value
    data[4080:] = digest(bytes(data[:4080]))
    with path.open("r+b") as file:
        file.write(data)


def test_files_are_private(config: DriveConfig) -> None:
    """KV reveals prompts: only the owner reads the slab."""
    path = make(config)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.directory.stat().st_mode) == 0o700


def test_the_capacity_is_a_hard_limit(config: DriveConfig) -> None:
    """The slab, header table and all, is never larger than asked, and is allocated at once."""
    path = make(config)
    assert config.capacity_bytes - 8192 - 4096 <= path.stat().st_size <= config.capacity_bytes
    assert path.stat().st_blocks * 512 >= path.stat().st_size


def test_the_free_space_floor_is_kept(config: DriveConfig) -> None:
    """A slab that would leave too little is refused, and leaves nothing behind."""
    greedy = replace(config, free_floor_bytes=1 << 60)
    with pytest.raises(CapacityError, match="does not fit") as caught:
        DriveTier(greedy)
    assert caught.value.asked_bytes > caught.value.limit_bytes == 0
    assert not slab_of(config).exists()
    assert list(config.directory.glob("*.new")) == []


@pytest.mark.parametrize("capacity_bytes", [4096, 1 << 20])
def test_a_capacity_below_one_block_is_refused(config: DriveConfig, capacity_bytes: int) -> None:
    """The message names the setting and what would do (1 MiB was said to hold no block of 8 KiB,
    and left people guessing: the table takes 4), and nothing is written."""
    with pytest.raises(
        CapacityError, match=rf"drive\.capacity of {capacity_bytes} .* 8192"
    ) as caught:
        DriveTier(replace(config, capacity_bytes=capacity_bytes))
    assert not config.directory.exists()
    enough = replace(config, capacity_bytes=caught.value.asked_bytes)
    assert str(enough.capacity_bytes) in caught.value.remedy
    tier = DriveTier(enough)
    assert tier.geometry.slots == 1
    tier.close()


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


def test_a_failed_opening_gives_the_lock_back(config: DriveConfig) -> None:
    """After an error the directory is free for a corrected try."""
    make(config)
    with pytest.raises(CapacityError):
        DriveTier(replace(config, capacity_bytes=6 << 20))
    DriveTier(config).close()


def test_an_interrupted_creation_is_started_anew(config: DriveConfig) -> None:
    """A half-made slab has a temporary name and is replaced."""
    config.directory.mkdir()
    (config.directory / "slab.pagoda.new").write_bytes(b"half")
    DriveTier(config).close()
    assert list(config.directory.glob("*.new")) == []


def test_aligned_buffers_are_not_copied(config: DriveConfig) -> None:
    """Page-aligned whole pages go straight through; others are counted as bounced."""
    tier = DriveTier(config)
    put(tier, [0, 1, 2], [1, 2, 3])
    assert tier.bounced == 0
    odd = memoryview(bytearray(8192 + 8))[3:8195]
    tier.read([0], [odd])
    assert tier.bounced == (1 if tier.direct else 0)
    assert odd == payload_of(tier, 1)
    tier.close()


def test_reads_past_the_end_are_short(config: DriveConfig) -> None:
    """A slab that is cut while open gives fewer bytes, not an exception."""
    tier = DriveTier(config)
    last = tier.geometry.slots - 1
    put(tier, [last], [1])
    os.truncate(slab_of(config), slab_of(config).stat().st_size - 8192 + 4096)
    buffer = payload_of(tier, 9)
    assert tier.read([last], [buffer]) == [4096]
    tier.close()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, TierFull),
        (errno.EDQUOT, TierFull),
        (errno.EROFS, TierReadOnly),
        (errno.EACCES, TierReadOnly),
        (errno.EIO, TierFault),
        (errno.EBADF, TierFault),
    ],
)
def test_every_os_error_has_its_kind(number: int, kind: type[Exception]) -> None:
    """The system's error numbers map into the error tree, with the file named."""
    with pytest.raises(kind, match="/some/slab"), typed_errors("drive", "/some/slab"):
        raise OSError(number, os.strerror(number))


def test_a_scan_is_one_sequential_pass_over_the_table(config: DriveConfig) -> None:
    """A rebuild reads headers and no payload."""
    tier = DriveTier(config)
    put(tier, list(range(tier.geometry.slots)), list(range(tier.geometry.slots)))
    found = dict(tier.scan())
    assert found == {n: header_of(n) for n in range(tier.geometry.slots)}
    tier.close()
    payloads = slab.read_layout(slab_of(config)).payload_offset
    with slab_of(config).open("r+b") as file:  # whatever the payloads hold
        file.seek(payloads)
        file.write(b"\xff" * (tier.geometry.slots * 8192))
    again = DriveTier(config)
    assert dict(again.scan()) == found
    again.close()


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


@pytest.mark.parametrize("number", [errno.EIO, errno.EISDIR, errno.EACCES, errno.ENOSPC])
def test_every_os_error_comes_with_a_remedy(number: int) -> None:
    """`kv: File exists` left people guessing what to do about it."""
    with pytest.raises(TierError) as caught, typed_errors("drive", "kv"):
        raise OSError(number, os.strerror(number))
    assert caught.value.remedy


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


def test_headers_of_neighbouring_slots_are_written_at_once(config: DriveConfig) -> None:
    """A batch of blocks costs one write for its headers, not one a block."""
    writes: list[int] = []

    class Counted(SlabFile):
        def write_table(self, data: bytes, offset: int) -> int:
            writes.append(len(data) // HEADER_BYTES)
            return super().write_table(data, offset)

    tier = DriveTier(config, opener=Counted)
    writes.clear()
    put(tier, [3, 4, 5, 9, 8], [1, 2, 3, 4, 5])
    assert writes == [3, 1, 1] * 2
    assert dict(tier.scan()) == dict(zip([3, 4, 5, 9, 8], map(header_of, range(1, 6)), strict=True))
    tier.close()


def test_a_cut_write_is_an_error_of_the_drive(config: DriveConfig) -> None:
    """The system may write less than it was given; what is short is not committed."""

    class Cut(SlabFile):
        def write_payloads(self, buffers: Sequence[memoryview], offset: int) -> int:
            return super().write_payloads([buffers[0][:4096]], offset)

    tier = DriveTier(config, opener=Cut)
    with pytest.raises(TierFault, match="4096 of 8192") as caught:
        tier.write([0], [payload_of(tier, 1)])
    assert caught.value.remedy
    tier.close()


def test_o_direct_that_is_asked_for_and_not_there_is_refused(
    config: DriveConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """drive.direct = on means: do not start without it."""
    monkeypatch.setattr("pagoda.tiers.drive.file._direct_reads", lambda fd: False)
    with pytest.raises(TierFault, match="no O_DIRECT") as caught:
        DriveTier(replace(config, direct="on"))
    assert "drive.direct" in caught.value.remedy
    fallback = DriveTier(config)
    assert not fallback.direct
    fallback.close()


Act = Callable[[DriveTier], object]
FAILING: list[tuple[str, int, type[TierError], Act]] = [
    ("write_table", errno.EROFS, TierReadOnly, lambda tier: tier.reserve([0])),
    ("write_payloads", errno.ENOSPC, TierFull, lambda tier: tier.write([0], [payload_of(tier, 1)])),
    ("sync", errno.EIO, TierFault, lambda tier: tier.commit([0], [header_of(1)])),
    ("write_table", errno.EIO, TierFault, lambda tier: tier.commit([0], [header_of(1)])),
    ("sync", errno.EIO, TierFault, lambda tier: tier.free([0])),
    ("read_payloads", errno.EIO, TierFault, lambda tier: tier.read([0], [payload_of(tier, 1)])),
    ("read_table", errno.EIO, TierFault, lambda tier: list(tier.scan())),
]


@pytest.mark.parametrize("failing", FAILING)
def test_what_a_dying_drive_says_is_typed_wherever_it_says_it(
    config: DriveConfig,
    monkeypatch: pytest.MonkeyPatch,
    failing: tuple[str, int, type[TierError], Act],
) -> None:
    """Every operation on the file: the error's kind, the slab's path and a remedy."""
    method, number, kind, act = failing
    tier = DriveTier(config)

    def fail(*args: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(SlabFile, method, fail)
        with pytest.raises(kind, match=slab.SLAB_NAME) as caught:
            act(tier)
    assert caught.value.remedy
    tier.close()


def test_without_a_sync_no_header_is_written(config: DriveConfig) -> None:
    """A drive that cannot make payloads durable commits none of them."""

    class Unsynced(SlabFile):
        failing = False

        def sync(self) -> None:
            if self.failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync()

    tier = DriveTier(config, opener=Unsynced)
    tier.reserve([0])
    tier.write([0], [payload_of(tier, 1)])
    Unsynced.failing = True
    with pytest.raises(TierFault):
        tier.commit([0], [header_of(1)])
    Unsynced.failing = False
    assert list(tier.scan()) == []
    tier.close()


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
