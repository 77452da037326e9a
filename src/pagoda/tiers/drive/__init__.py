"""The drive tier: one preallocated slab a directory, past the page cache where possible."""

from pagoda.tiers.drive.lock import PAGODA, Owner
from pagoda.tiers.drive.tier import DriveConfig, DriveTier, look

__all__ = ["PAGODA", "DriveConfig", "DriveTier", "Owner", "look"]
