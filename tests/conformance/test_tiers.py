"""Every tier of Pagoda's own passes the public conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagoda.testing.conformance import DurableTierConformance, TierConformance
from pagoda.testing.faults import FaultyTier
from pagoda.tiers.drive import DriveConfig, DriveTier
from pagoda.tiers.host import HostTier
from pagoda.tiers.port import Tier


class TestHost(TierConformance):
    """Memory."""

    @pytest.fixture
    def tier(self) -> Iterator[Tier]:
        tier = HostTier(slots=8, slot_bytes=8192)
        yield tier
        tier.close()


class TestFaultsSwitchedOff(TierConformance):
    """The fault wrapper changes nothing until it is told to."""

    @pytest.fixture
    def tier(self) -> Tier:
        return FaultyTier(HostTier(slots=8, slot_bytes=8192))


class TestDrive(DurableTierConformance):
    """One slab, past the page cache where the file system allows it, and through it."""

    @pytest.fixture(params=["auto", "off"])
    def config(self, tmp_path: Path, request: pytest.FixtureRequest) -> DriveConfig:
        return DriveConfig(
            directory=tmp_path,
            capacity_bytes=5 << 20,
            slot_bytes=8192,
            free_floor_bytes=0,
            direct=request.param,
        )

    @pytest.fixture
    def tier(self, config: DriveConfig) -> Iterator[Tier]:
        self.opened = [DriveTier(config)]
        yield self.opened[0]
        self.opened[-1].close()

    @pytest.fixture
    def reopen(self, tier: Tier, config: DriveConfig) -> Callable[[], Tier]:
        def again() -> Tier:
            tier.close()
            self.opened.append(DriveTier(config))
            return self.opened[-1]

        return again
