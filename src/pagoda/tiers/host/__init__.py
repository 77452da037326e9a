"""The host tier: blocks in this process's memory."""

from pagoda.tiers.host.tier import HostTier

__all__ = ["HostTier"]
