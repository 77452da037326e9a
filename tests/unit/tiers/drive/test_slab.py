"""The drive's slab: capacity, alignment, errors, one pass to scan it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from drive_harness import make, slab_of

from pagoda.core.errors import (
    CapacityError,
    TierError,
    TierFault,
    TierFull,
    TierReadOnly,
)
from pagoda.seal.header import HEADER_BYTES
from pagoda.testing.conformance import header_of, payload_of, put
from pagoda.tiers.drive import DriveConfig, DriveTier, slab
from pagoda.tiers.drive.file import SlabFile
from pagoda.tiers.drive.oserrors import typed_errors


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


@pytest.mark.parametrize("number", [errno.EIO, errno.EISDIR, errno.EACCES, errno.ENOSPC])
def test_every_os_error_comes_with_a_remedy(number: int) -> None:
    """`kv: File exists` left people guessing what to do about it."""
    with pytest.raises(TierError) as caught, typed_errors("drive", "kv"):
        raise OSError(number, os.strerror(number))
    assert caught.value.remedy


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
