"""Eviction policies: one file each with its reference, one registry line each."""

from __future__ import annotations

from collections.abc import Callable

from pagoda.core.policy.ema import Ema
from pagoda.core.policy.lru import Lru
from pagoda.core.policy.port import Ending, Hint, Policy, Request

# Each is made for a tier of so many slots.
REGISTRY: dict[str, Callable[[int], Policy]] = {
    "lru": Lru,
    "ema": Ema,
}

__all__ = ["REGISTRY", "Ema", "Ending", "Hint", "Lru", "Policy", "Request"]
