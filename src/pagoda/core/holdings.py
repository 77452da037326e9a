"""What an operator asks of the caches and is told: values only.

A tenant is named by a digest of its salt (`tenant_id`), because the salt itself is a secret
between the tenant and the server. Times are seconds since the epoch, sizes bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pagoda.core.identity import Key, NamespaceId

SHARED = "shared"  # requests without a salt
UNKNOWN = "unknown"  # blocks of a namespace that no process has told of
_DOMAIN = b"pagoda.tenant.v1\0"


def tenant_id(salt: str) -> str:
    """16 hex digits that name a tenant; `shared` for the empty salt."""
    return hashlib.sha256(_DOMAIN + salt.encode()).hexdigest()[:16] if salt else SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which blocks: those that meet every condition that is not None. `below` is the last key
    of a prefix, and means its block and every block that continues it."""

    namespaces: frozenset[NamespaceId] | None = None
    below: Key | None = None
    before_s: int | None = None  # first stored before then

    @property
    def everything(self) -> bool:
        """Whether there is no condition."""
        return self.namespaces is None and self.below is None and self.before_s is None

    def may_name(self, namespace: NamespaceId) -> bool:
        """Whether blocks of a namespace can be among them."""
        return self.namespaces is None or namespace in self.namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A selection as an operator words it; all None: everything. A tenant is named by its id or
    by its salt, which a prompt (its tokens) belongs to as well; a namespace in hex, of which a
    beginning suffices that no other has."""

    tenant: str | None = None
    salt: str | None = None
    namespace: str | None = None
    prompt: tuple[int, ...] | None = None
    older_than_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Blocks of one namespace in one tier. `current` says that requests can find them: they
    belong to the weights and settings that are served now."""

    tier: str
    namespace: str
    tenant: str
    current: bool
    blocks: int
    size_bytes: int
    tokens: int
    longest_chain: int
    oldest_s: int
    newest_s: int


class Standing(StrEnum):
    """Whether a tier takes new blocks."""

    SERVING = "serving"
    FENCED = "fenced"  # not now: it failed, is unhealthy or full; what it holds is read
    DRAINING = "draining"  # not any more, as an operator said; what it holds is read
    LOST = "lost"  # it could not be read at the start: nothing of it can be had


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatus:
    """How a tier stands, how many of its slots hold a block that can be found, how many of those
    blocks are pinned, and by which policy, and which of its orders, others make room."""

    tier: str
    standing: Standing
    blocks: int
    slots: int
    pinned: int = 0
    policy: str = ""
    leader: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Tokens of a prompt in one tier: `held` at all, and `first` of those in the resident
    prefix that no faster tier holds."""

    tier: str
    held: int
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """How much of a prompt is resident: the longest prefix of full blocks, by tier."""

    prompt_tokens: int
    block_tokens: int
    resident_tokens: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What reading a tier's headers back found: headers in all, those of the selection that
    are left, and those that were written after it was cleared. None is unknown: the tier could
    not be read to its end."""

    tier: str
    headers: int | None
    left: int | None
    newer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What a clearing did. `dropped` counts blocks by tier, `erased` headers of blocks that
    were already gone; `verified` says that the scans found nothing left. `untouched` names
    shared stores, when the selection says nothing that their names tell."""

    dropped: dict[str, int]
    erased: int
    scans: tuple[Scanned, ...]
    verified: bool
    untouched: tuple[str, ...] = ()


class PrefetchState(StrEnum):
    """Where a prefetch is."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"  # a block could not be had, or there is no room for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetched:
    """Progress of a prefetch, in blocks: `present` were in the upper tier already, `done` have
    been brought up, of `blocks` in all that the tiers hold."""

    id: str
    state: PrefetchState
    blocks: int
    present: int
    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ttl:
    """How long blocks live, in seconds. `tenant` None: those of every tenant without its own."""

    tenant: str | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BarredNamespace:
    """A namespace (in hex) of which nothing is handed out or stored: since when, and why."""

    namespace: str
    tenant: str
    since_s: int
    detail: str


def lineage(links: Iterable[tuple[Key, Key]], root: Key) -> set[Key]:
    """The keys of `root` and of every block that continues it, from (key, parent) pairs."""
    children: dict[Key, list[Key]] = {}
    for key, parent in links:
        children.setdefault(parent, []).append(key)
    found: set[Key] = set()
    waiting = [root]
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += children.get(key, ())
    return found
