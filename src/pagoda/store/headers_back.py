"""Reading a tier's headers back: what the medium itself says it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from pagoda.core.errors import TierError, TierFault
from pagoda.core.holdings import Selection
from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.headers import sift
from pagoda.tiers.sealed import SealedTier

_BATCH = 4096


@dataclass(frozen=True, slots=True)
class Written:
    """A sound header as it lies on the medium."""

    slot: int
    namespace: NamespaceId
    key: Key
    parent: Key
    created_s: int


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Headers in all, and those of a selection, its prefix left aside. `error`: the tier could
    not be read to its end."""

    headers: int
    written: list[Written]
    error: TierError | None = None


def read_back(sealed: SealedTier, selection: Selection) -> ReadBack:
    """In an I/O thread: every header of a tier, without touching a payload. Raises nothing."""
    found: list[Written] = []
    headers = 0
    try:
        for batch in _batches(sealed):
            headers += len(batch)
            found += [one for one in batch if _meets(one, selection)]
    except TierError as error:
        return ReadBack(headers, found, error)
    return ReadBack(headers, found)


def _batches(sealed: SealedTier) -> Iterator[list[Written]]:
    identity = sealed.tier.identity
    try:
        headers = sealed.tier.scan()
        while batch := list(islice(headers, _BATCH)):
            slots, raw = [slot for slot, _ in batch], [bytes(header) for _, header in batch]
            sifted = sift(slots, raw, slab_id=identity)
            plain = sifted.plain
            columns = (plain[name].tolist() for name in ("slot", "namespace", "key", "parent"))
            created_s = (plain["created_ms"] // 1000).tolist()
            rows = [Written(*row) for row in zip(*columns, created_s, strict=True)]
            yield rows + [
                Written(slot, seal.namespace, seal.key, seal.parent, seal.created_ms // 1000)
                for slot, seal in sifted.others
            ]
    except TierError:
        raise
    except Exception as error:
        message = f"the tier raised {type(error).__name__}: {error}"
        raise TierFault(message, tier=sealed.name) from error


def _meets(one: Written, selection: Selection) -> bool:
    if selection.namespaces is not None and one.namespace not in selection.namespaces:
        return False
    return selection.before_s is None or one.created_s < selection.before_s
