"""What a drive directory holds of each namespace, read from outside, beside an engine or not."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from pagoda.core.holdings import UNKNOWN, BarredNamespace
from pagoda.core.identity import NamespaceId
from pagoda.seal.header import Seal
from pagoda.store import quarantine
from pagoda.store.catalogue import Catalogue
from pagoda.store.inspect import DriveInspector, drives_in
from pagoda.store.quarantine import Quarantine
from pagoda.tiers.drive.lock import DirectoryLock


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Blocks of one namespace in a drive. `current` is None: only an engine knows what it
    serves. Otherwise as core.holdings.Holding."""

    tier: str
    namespace: str
    tenant: str
    current: None
    blocks: int
    size_bytes: int
    tokens: int
    longest_chain: int
    oldest_s: int
    newest_s: int


def stored_in(path: Path, *, before_s: float | None = None) -> list[Stored]:
    """By drive and namespace, the most bytes first; with `before_s`, only blocks written earlier
    (seconds since the epoch). `path` is a drive's directory, or one right above some, as
    `drive.path` is. Writes nothing, takes no lock. Raises TierError for what is no drive."""
    found = [one for directory in drives_in(path) for one in _stored(directory, before_s)]
    return sorted(found, key=lambda one: -one.size_bytes)


def quarantined_in(path: Path) -> list[BarredNamespace]:
    """Namespaces in quarantine, as the drives of a path say. Writes nothing, takes no lock.
    Raises TierError for what is no drive."""
    found = [one for directory in drives_in(path) for one in _quarantined(directory)]
    return list({one.namespace: one for one in found}.values())


def lift_in(path: Path, namespace: str) -> BarredNamespace:
    """Take a namespace, named by how it begins, out of quarantine in the drives of a path. Raises
    RequestError for one that is not there, DirectoryLocked while an engine has a directory."""
    found = quarantine.named(quarantined_in(path), namespace)
    for directory in drives_in(path):
        if any(one.namespace == found.namespace for one in _quarantined(directory)):
            _lift(directory, NamespaceId(bytes.fromhex(found.namespace)))
    return found


def _stored(directory: Path, before_s: float | None) -> list[Stored]:
    entries, _ = DriveInspector(directory).entries()
    catalogue = Catalogue([directory])
    seals: dict[bytes, list[Seal]] = defaultdict(list)
    for entry in entries:
        if before_s is None or entry.seal.created_ms < before_s * 1000:
            seals[entry.seal.namespace].append(entry.seal)
    return [_sum(some, catalogue) for some in seals.values()]


def _quarantined(directory: Path) -> list[BarredNamespace]:
    DriveInspector(directory)
    return quarantine.listed(Quarantine([directory]), Catalogue([directory]))


def _lift(directory: Path, namespace: NamespaceId) -> None:
    lock = DirectoryLock(directory, tier="drive")
    try:
        kept = Quarantine([directory])
        kept.lift(namespace)
        kept.close()
    finally:
        lock.release()


def _sum(some: list[Seal], catalogue: Catalogue) -> Stored:
    name = some[0].namespace
    origin = catalogue.origin(name)
    return Stored(
        tier="drive",
        namespace=name.hex(),
        tenant=UNKNOWN if origin is None else origin.tenant,
        current=None,
        blocks=len(some),
        size_bytes=sum(seal.stored_bytes for seal in some),
        tokens=sum(seal.tokens for seal in some),
        longest_chain=max(seal.depth for seal in some) + 1,
        oldest_s=min(seal.created_ms for seal in some) // 1000,
        newest_s=max(seal.created_ms for seal in some) // 1000,
    )
