"""Two nodes, one store that may lie, a clock that stands still."""

from __future__ import annotations

import pytest
from shared_harness import Counting, Node

from pagoda.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tier() -> Counting:
    return Counting()


@pytest.fixture
def node(tier: Counting, clock: FakeClock) -> Node:
    return Node(tier, clock=clock)


@pytest.fixture
def writer(tier: Counting, clock: FakeClock) -> Node:
    """Another node, which fills the store."""
    return Node(tier, clock=clock, seed=1)
