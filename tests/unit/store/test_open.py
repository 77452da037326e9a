"""Building a store, and what a failed building leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.core.errors import CapacityError, TierFault
from pagoda.store.executor import Runtime
from pagoda.store.open import StorePlan, open_store
from pagoda.store.store import StoreConfig
from pagoda.testing.executor import SteppedExecutor
from pagoda.tiers.drive import DriveConfig, DriveTier


def plan(directory: Path, *, host_bytes: int = 0) -> StorePlan:
    """A small drive, and perhaps memory above it."""
    drive = DriveConfig(
        directory=directory, capacity_bytes=5 << 20, slot_bytes=8192, free_floor_bytes=0
    )
    return StorePlan(block_bytes=8192, host_bytes=host_bytes, drives=(drive,), config=StoreConfig())


def test_levels_are_fastest_first(tmp_path: Path) -> None:
    """Memory comes before the drive, with as many slots as its bytes hold."""
    store = open_store(plan(tmp_path, host_bytes=100_000), Runtime(executor=SteppedExecutor()))
    upper, lower = store.levels()
    assert (upper.name, upper.state.slots) == ("host", 12)
    assert lower.name == "drive"
    store.close(flush_s=1)


def test_memory_that_holds_no_block_is_refused(tmp_path: Path) -> None:
    """The message names the setting, and the drive is not locked by the failed try."""
    with pytest.raises(CapacityError, match=r"host\.capacity of 8191"):
        open_store(plan(tmp_path, host_bytes=8191), Runtime(executor=SteppedExecutor()))
    open_store(plan(tmp_path), Runtime(executor=SteppedExecutor())).close(flush_s=1)


def test_a_failed_rebuild_gives_the_directory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that cannot be read fails the start, not every later start in this process."""

    def broken(self: DriveTier) -> None:
        raise TierFault("the table cannot be read", tier="drive")

    with monkeypatch.context() as patch:
        patch.setattr(DriveTier, "scan", broken)
        with pytest.raises(TierFault):
            open_store(plan(tmp_path), Runtime(executor=SteppedExecutor()))
    open_store(plan(tmp_path), Runtime(executor=SteppedExecutor())).close(flush_s=1)
