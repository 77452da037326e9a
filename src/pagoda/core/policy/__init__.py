"""Eviction policies: one file each with its reference, one registry line each."""

from __future__ import annotations

from collections.abc import Callable

from pagoda.core.policy.arc import Arc
from pagoda.core.policy.ema import Ema
from pagoda.core.policy.ema_literal import EmaLiteral
from pagoda.core.policy.gdsf import Gdsf
from pagoda.core.policy.heat import Heat
from pagoda.core.policy.lfu import Lfu
from pagoda.core.policy.lru import Lru
from pagoda.core.policy.lru2 import Lru2
from pagoda.core.policy.port import Ending, Hint, Policy, Request
from pagoda.core.policy.recent_window import RecentWindow
from pagoda.core.policy.s3fifo import S3Fifo
from pagoda.core.policy.sieve import Sieve

# Each is made for a tier of so many slots. Belady's optimum needs the future, and is not here.
REGISTRY: dict[str, Callable[[int], Policy]] = {
    "heat": Heat,
    "lru": Lru,
    "lru-2": Lru2,
    "arc": Arc,
    "s3-fifo": S3Fifo,
    "sieve": Sieve,
    "lfu": Lfu,
    "gdsf": Gdsf,
    "recent-window": RecentWindow,
    "ema": Ema,
    "ema-literal": EmaLiteral,
}


def name_of(policy: Policy) -> str:
    """What a policy is called here; one of another's making, by its class."""
    kind = type(policy)
    return next((name for name, made in REGISTRY.items() if made is kind), kind.__name__)


DEFAULT = "heat"
# Policies differ by less there, and an order that fits in native tables is rebuilt soon.
DRIVE_DEFAULT = "lru"

__all__ = [
    "DEFAULT",
    "DRIVE_DEFAULT",
    "REGISTRY",
    "Ending",
    "Hint",
    "Lru",
    "Policy",
    "Request",
    "name_of",
]
