"""Policies by name, as a replay makes them: those of a live tier, and the bound."""

from __future__ import annotations

from pagoda.core.errors import SettingsError
from pagoda.core.policy import REGISTRY, Policy
from pagoda.core.policy.belady import Belady
from pagoda.core.trace import Trace
from pagoda.lab.replay.one_tier import key_of

BELADY = "belady"
POLICIES = (*REGISTRY, BELADY)


def make_policy(name: str, capacity: int, trace: Trace) -> Policy:
    """A policy for a tier of `capacity` blocks. The bound is told the trace's future, which no
    live tier has. Raises SettingsError if there is no such policy."""
    if name == BELADY:
        return Belady(capacity, ([key_of(b) for b in r.prompt] for r in trace.requests))
    if name not in REGISTRY:
        raise SettingsError(
            f"policy {name!r} is unknown",
            key="policy",
            source="replay",
            remedy=f"known: {', '.join(POLICIES)}",
        )
    return REGISTRY[name](capacity)
