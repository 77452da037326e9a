"""Building a store, and what a failed building leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cuda import FakeDriver

from pagoda.core.errors import CapacityError, TierFault
from pagoda.core.identity import NamespaceId
from pagoda.machine.cuda import Cuda
from pagoda.store.executor import Runtime
from pagoda.store.open import StorePlan, open_store
from pagoda.store.quarantine import Entry
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


def pinned(directory: Path, how: str) -> StorePlan:
    """Memory above a drive, to be pinned or not."""
    return replace(plan(directory, host_bytes=16_384), host_pinned=how)


def test_memory_is_pinned_where_cuda_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once at the start, and until the store is closed; not at all when it is off."""
    driver = FakeDriver()
    monkeypatch.setattr("pagoda.store.open.find_cuda", lambda: Cuda(driver))
    store = open_store(pinned(tmp_path, "auto"), Runtime(executor=SteppedExecutor()))
    assert sum(driver.pinned.values()) == 16_384
    store.close(flush_s=1)
    assert driver.pinned == {}
    open_store(pinned(tmp_path, "off"), Runtime(executor=SteppedExecutor())).close(flush_s=1)
    assert driver.retained == 1


def test_a_failed_start_leaves_nothing_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that is still registered would fail the next try in this process."""
    driver = FakeDriver()
    monkeypatch.setattr("pagoda.store.open.find_cuda", lambda: Cuda(driver))
    monkeypatch.setattr(DriveTier, "scan", unreadable)
    with pytest.raises(TierFault, match="cannot be read"):
        open_store(pinned(tmp_path, "auto"), Runtime(executor=SteppedExecutor()))
    assert driver.pinned == {}


def unreadable(tier: DriveTier) -> None:
    """A table of headers that the drive does not give."""
    raise TierFault("the table cannot be read", tier=tier.name)


def test_pinning_that_must_be_and_cannot_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a device: told when it is on, and done without when it is auto."""
    monkeypatch.setattr("pagoda.store.open.find_cuda", lambda: None)
    with pytest.raises(TierFault, match=r"host\.pinned is on") as caught:
        open_store(pinned(tmp_path, "on"), Runtime(executor=SteppedExecutor()))
    assert "auto" in caught.value.remedy
    open_store(pinned(tmp_path, "auto"), Runtime(executor=SteppedExecutor())).close(flush_s=1)


def test_a_quarantine_is_kept_in_the_drives_directory(tmp_path: Path) -> None:
    """What a store puts in quarantine, the next one over the same drive leaves alone."""
    namespace = NamespaceId(b"q" * 32)
    for known in (False, True):
        store = open_store(plan(tmp_path), Runtime(executor=SteppedExecutor()))
        assert store.quarantine.bars(namespace) == known
        store.quarantine.add(namespace, Entry(7, "because"))
        store.close(flush_s=1)
