"""Opening a pool of drives: which failure costs a drive, which refuses the start."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pagoda.core.errors import (
    CapacityError,
    DirectoryLocked,
    FormatError,
    TierError,
    TierFault,
    TierReadOnly,
)
from pagoda.core.events import Degraded, Event, Reason
from pagoda.store import drives as module
from pagoda.store.drives import EndurancePlan, Pool, open_pool
from pagoda.store.executor import Runtime
from pagoda.store.ledger import LEDGER_NAME
from pagoda.testing.executor import SteppedExecutor
from pagoda.tiers.drive import DriveConfig, DriveTier
from pagoda.tiers.drive.oserrors import typed_errors

SLOT = 8192
NO_LIMIT = EndurancePlan(writes_per_day=0)


def config(directory: Path, *, capacity_bytes: int = 5 << 20) -> DriveConfig:
    """A small drive."""
    return DriveConfig(
        directory=directory, capacity_bytes=capacity_bytes, slot_bytes=SLOT, free_floor_bytes=0
    )


class Opening:
    """Opens pools in directories of a test, and keeps what was told."""

    def __init__(self, tmp_path: Path) -> None:
        self.paths = [tmp_path / name for name in "abc"]
        self.events: list[Event] = []
        self.now_ms = 1_000_000

    def __call__(self, *, count: int = 3, endurance: EndurancePlan = NO_LIMIT) -> Pool:
        runtime = Runtime(
            executor=SteppedExecutor(),
            clock=lambda: 0.0,
            wall_ms=lambda: self.now_ms,
            observer=self.events.append,
        )
        configs = [config(path) for path in self.paths[:count]]
        return open_pool(configs, endurance=endurance, runtime=runtime)

    def break_drive(self, monkeypatch: pytest.MonkeyPatch, number: int, error: Exception) -> None:
        """Opening this drive fails."""
        opened = DriveTier.__init__

        def broken(tier: DriveTier, config: DriveConfig, **others: object) -> None:
            if config.directory == self.paths[number]:
                with typed_errors("drive", str(config.directory)):
                    raise error
            opened(tier, config, **others)

        monkeypatch.setattr(DriveTier, "__init__", broken)


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    """Three directories."""
    return Opening(tmp_path)


def test_one_drive_keeps_its_name_and_several_are_numbered(opening: Opening) -> None:
    """In the order of the settings; metrics and events tell them apart by it."""
    one = opening(count=1)
    assert [tier.name for tier in one.tiers] == ["drive"]
    one.close()
    three = opening()
    assert [tier.name for tier in three.tiers] == ["drive0", "drive1", "drive2"]
    assert set(three.wears) == set(three.cares) == {"drive0", "drive1", "drive2"}
    three.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ETIMEDOUT, errno.ENODEV])
def test_a_drive_that_fails_like_a_drive_is_left_out(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The others serve, under the names that they always have, and the failure is told."""
    opening.break_drive(monkeypatch, 1, OSError(number, os.strerror(number)))
    pool = opening()
    assert [tier.name for tier in pool.tiers] == ["drive0", "drive2"]
    assert [type(event) for event in opening.events] == [Degraded]
    pool.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOENT, "no such directory"), TierFault),
        (OSError(errno.EACCES, "permission denied"), TierReadOnly),
        (FormatError("foreign", tier="drive", path="x"), FormatError),
        (DirectoryLocked("locked", tier="drive", path="x", owner="y"), DirectoryLocked),
        (CapacityError("small", tier="drive", asked_bytes=2, limit_bytes=1), CapacityError),
    ],
)
def test_what_an_operator_has_to_decide_refuses_the_start(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type
) -> None:
    """A wrong path or a foreign file is no failing drive; no directory stays locked."""
    with monkeypatch.context() as patch:
        opening.break_drive(patch, 2, error)
        with pytest.raises(kind):
            opening()
    opening().close()


def foreign(path: Path) -> None:
    """Somebody else's file where the slab would be."""
    path.mkdir()
    (path / "slab.pagoda").write_text("a thesis")


def foreign_lock(path: Path) -> None:
    """Somebody else's file where the lock would be."""
    path.mkdir()
    (path / "lock").write_text("of the front door")


def newer_account(path: Path) -> None:
    """A write budget of a later Pagoda, and no slab yet."""
    path.mkdir()
    (path / LEDGER_NAME).write_text(json.dumps({"format": "pagoda-budget", "version": 9}))


def in_the_way(path: Path) -> None:
    """A file where the directory would be."""
    path.write_text("a thesis")


def no_access(path: Path) -> None:
    """A directory that others may write to."""
    path.mkdir(mode=0o500)


@pytest.mark.parametrize("spoil", [foreign, foreign_lock, newer_account, in_the_way, no_access])
def test_a_refused_start_writes_nothing_to_any_drive(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]
) -> None:
    """Not to the new drives before the refused one either: their slabs may be terabytes."""
    spoil(opening.paths[2])
    if spoil is no_access and os.geteuid() == 0:  # whom nothing is denied
        monkeypatch.setattr(os, "access", lambda path, mode: path != opening.paths[2])
    before = everything(opening)
    with pytest.raises(TierError):
        opening()
    assert everything(opening) == before


def test_a_running_engine_on_the_last_drive_leaves_the_new_ones_untouched(
    opening: Opening, tmp_path: Path
) -> None:
    """Its lock stays its own."""
    running = DriveTier(config(opening.paths[2]))
    before = everything(opening)
    with pytest.raises(DirectoryLocked):
        opening()
    assert everything(opening) == before
    running.close()
    opening().close()


def test_drives_that_do_not_fit_together_write_nothing(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alone would fit their common file system."""
    real = os.statvfs

    def statvfs(path: Path) -> SimpleNamespace:
        found = real(path)
        return SimpleNamespace(f_bavail=12 << 20, f_frsize=1, f_blocks=1 << 40, f_flag=found.f_flag)

    monkeypatch.setattr(os, "statvfs", statvfs)
    with pytest.raises(CapacityError, match="does not fit"):
        opening(count=3)
    assert everything(opening) == {}
    opening(count=2).close()


def test_a_new_drive_on_a_read_only_file_system_takes_no_space(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It will be left out; the other has the room that both together would not."""
    root, real = opening.paths[0].parent, os.statvfs
    (root / "a").mkdir()
    (root / "b").mkdir()

    def statvfs(path: Path) -> SimpleNamespace:
        flag = os.ST_RDONLY if path == root / "a" else 0
        return SimpleNamespace(
            f_bavail=8 << 20, f_frsize=1, f_blocks=real(path).f_blocks, f_flag=flag
        )

    monkeypatch.setattr(os, "statvfs", statvfs)
    opening.break_drive(monkeypatch, 0, OSError(errno.EROFS, os.strerror(errno.EROFS)))
    pool = opening(count=2)
    assert [tier.name for tier in pool.tiers] == ["drive1"]
    pool.close()


def everything(opening: Opening) -> dict[Path, bytes | None]:
    """Every path below the test's directory, and what files hold."""
    root = opening.paths[0].parent
    return {path: path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def test_a_pool_of_failing_drives_refuses_the_start(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One drive alone, or the last one left, is an error as it always was."""
    opening.break_drive(monkeypatch, 0, OSError(errno.EIO, "input/output error"))
    with pytest.raises(TierFault):
        opening(count=1)


def test_a_foreign_file_in_one_directory_is_refused_and_kept(opening: Opening) -> None:
    """A real one, through the real code."""
    opening.paths[1].mkdir()
    (opening.paths[1] / "slab.pagoda").write_bytes(b"somebody's words" * 1000)
    with pytest.raises(FormatError):
        opening()
    assert (opening.paths[1] / "slab.pagoda").read_bytes() == b"somebody's words" * 1000


def test_the_budget_of_a_day_is_the_file_systems_size_shared(opening: Opening) -> None:
    """«Drive writes a day» are writes of the whole drive; three slabs on it share them."""
    opening.paths[0].parent.mkdir(exist_ok=True)
    size = os.statvfs(opening.paths[0].parent)
    whole = size.f_blocks * size.f_frsize
    pool = opening(endurance=EndurancePlan(writes_per_day=0.5))
    for wear in pool.wears.values():
        assert wear.budget.left_bytes(0.0) == int(whole * 0.5) // 3
    pool.close()


def test_an_account_counts_on_after_a_restart(opening: Opening) -> None:
    """What was granted and not settled stays spent."""
    plan = EndurancePlan(writes_per_day=0, total_bytes=1 << 30)
    pool = opening(count=1, endurance=plan)
    wear = pool.wears["drive"]
    assert wear.keep(wear.budget.grant(0.0, opening.now_ms)) is None
    pool.close()
    again = opening(count=1, endurance=plan)
    assert again.wears["drive"].budget.left_bytes(0.0) == (1 << 30) - (64 << 20)
    again.close()


def test_a_damaged_account_leaves_nothing_to_write_and_says_so(opening: Opening) -> None:
    """Never more than the budget because a file was lost; blocks are still read."""
    opening(count=1).close()
    (opening.paths[0] / LEDGER_NAME).write_text("{}")
    pool = opening(count=1, endurance=EndurancePlan(writes_per_day=1.0, total_bytes=1 << 30))
    assert pool.wears["drive"].budget.left_bytes(0.0) == 0
    assert [event.reason for event in opening.events] == [Reason.WORN]
    pool.close()


def test_a_newer_account_refuses_the_start_and_unlocks(opening: Opening) -> None:
    """As a newer slab does."""
    opening().close()
    path = opening.paths[2] / LEDGER_NAME
    path.write_text(json.dumps({"format": "pagoda-budget", "version": 9}))
    with pytest.raises(FormatError):
        opening()
    path.unlink()
    opening().close()


def test_an_account_that_cannot_be_read_costs_its_drive(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O error beside the slab is one of the drive's; its directory is given back."""
    wear = module._wear

    def broken(config: DriveConfig, *others: object) -> object:
        if config.directory == opening.paths[0]:
            raise TierFault("input/output error", tier=config.name, errno=errno.EIO)
        return wear(config, *others)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_wear", broken)
        pool = opening()
    assert [tier.name for tier in pool.tiers] == ["drive1", "drive2"]
    pool.close()
    opening().close()


def test_the_space_that_is_looked_at_is_the_file_systems(opening: Opening) -> None:
    """And a directory that went away is a typed error."""
    pool = opening(count=1)
    space = pool.cares["drive"].space()
    assert space.free_bytes > 0
    assert space.floor_bytes == 0
    pool.close()
    for file in opening.paths[0].iterdir():
        file.unlink()
    opening.paths[0].rmdir()
    with pytest.raises(TierError):
        pool.cares["drive"].space()
