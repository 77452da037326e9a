"""The host tier: blocks in this process's memory."""

from pagoda.tiers.host.staging import StagingRing, Use
from pagoda.tiers.host.tier import HostTier, Staging

__all__ = ["HostTier", "Staging", "StagingRing", "Use"]
