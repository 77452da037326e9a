"""A small drive."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.tiers.drive import DriveConfig


@pytest.fixture
def config(tmp_path: Path) -> DriveConfig:
    """A small drive."""
    return DriveConfig(
        directory=tmp_path / "kv", capacity_bytes=5 << 20, slot_bytes=8192, free_floor_bytes=0
    )
