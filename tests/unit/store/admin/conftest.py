"""A store with its administration, which adds up after every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_harness import AdminHarness


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminHarness]:
    """64 blocks in each tier, 16 on the device; half may be pinned, a quarter by one owner."""
    harness = AdminHarness(tmp_path)
    yield harness
    harness.executor.unhold()
    harness.settle()
    assert harness.admin.idle
    harness.store.check_invariants()
    harness.device.residency.check_invariants()
    harness.admin.pins.check_invariants()
