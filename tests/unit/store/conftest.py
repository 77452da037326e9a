"""A harness whose invariants are checked after every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store_harness import Harness


@pytest.fixture
def harness() -> Iterator[Harness]:
    """An upper tier of 16 and a lower of 32 blocks."""
    harness = Harness()
    yield harness
    harness.executor.unhold()
    harness.settle()
    assert harness.store.idle
    harness.store.check_invariants()
