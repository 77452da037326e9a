"""Counting and choosing published blocks by namespace and age: whole tables at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagoda.core.holdings import UNKNOWN, Holding, Selection
from pagoda.core.identity import NamespaceId
from pagoda.store.catalogue import Catalogue
from pagoda.store.level import Level

Slots = NDArray[np.intp]
Column = NDArray[Any]  # numbers, one a row


def published(level: Level) -> Slots:
    """The slots that keys lead to."""
    return np.flatnonzero(level.state.published_mask())


def chosen(level: Level, selection: Selection) -> Slots:
    """Published slots of a selection, its prefix left aside."""
    seals, slots = level.sealed.seals, published(level)
    if selection.namespaces is not None:
        wanted = [i for i, n in enumerate(list(seals.namespaces)) if n in selection.namespaces]
        slots = slots[np.isin(seals.namespace_of[slots], wanted)]
    if selection.before_s is not None:
        slots = slots[seals.created_s[slots] < selection.before_s]
    return slots


def expired(level: Level, catalogue: Catalogue, now_s: int) -> Slots:
    """Published slots whose time to live is over."""
    seals, slots = level.sealed.seals, published(level)
    born_before = _latest_births(list(seals.namespaces), catalogue, now_s)
    if not born_before.any() or not len(slots):
        return slots[:0]
    return slots[seals.created_s[slots] <= born_before[seals.namespace_of[slots]]]


def next_expiry_s(level: Level, catalogue: Catalogue) -> int | None:
    """When the next block's time will be over; None: never, as things are."""
    seals, slots = level.sealed.seals, published(level)
    lives = [catalogue.ttl(name) for name in list(seals.namespaces)]
    if not len(slots) or all(life is None for life in lives):
        return None
    spans = np.array([np.inf if life is None else np.ceil(life) for life in lives])
    first = float((seals.created_s[slots] + spans[seals.namespace_of[slots]]).min())
    return None if np.isinf(first) else int(first)


def holdings(
    level: Level, catalogue: Catalogue, selection: Selection, *, generation: str, block_tokens: int
) -> list[Holding]:
    """What a level holds of each namespace of a selection, the most bytes first. One pass over
    each column, however many namespaces there are: it runs between two steps of an engine."""
    seals, slots = level.sealed.seals, chosen(level, selection)
    numbers = seals.namespace_of[slots]
    names = list(seals.namespaces)  # after the numbers: I/O threads add names
    sums = _Sums(numbers, len(names))
    blocks = sums.counts()
    size_bytes = sums.totals(seals.lengths[slots])
    deepest = sums.largest(seals.depths[slots])
    born_s = seals.created_s[slots]
    oldest_s, newest_s = sums.smallest(born_s), sums.largest(born_s)
    found: list[Holding] = []
    for number in np.flatnonzero(blocks).tolist():
        origin = catalogue.origin(names[number])
        found.append(
            Holding(
                tier=level.name,
                namespace=names[number].hex(),
                tenant=UNKNOWN if origin is None else origin.tenant,
                current=origin is not None and origin.generation == generation,
                blocks=int(blocks[number]),
                size_bytes=int(size_bytes[number]),
                tokens=int(blocks[number]) * block_tokens,
                longest_chain=int(deepest[number]) + 1,
                oldest_s=int(oldest_s[number]),
                newest_s=int(newest_s[number]),
            )
        )
    return sorted(found, key=lambda holding: -holding.size_bytes)


class _Sums:
    """Columns summed up by group: `groups` has each row's, of `count` groups."""

    def __init__(self, groups: NDArray[np.uint32], count: int) -> None:
        self._groups = groups
        self._count = count

    def counts(self) -> Column:
        """Rows of each group."""
        return np.bincount(self._groups, minlength=self._count)

    def totals(self, column: Column) -> Column:
        """Exact up to 2**53."""
        return np.bincount(self._groups, weights=column, minlength=self._count)

    def largest(self, column: Column) -> Column:
        """0 for a group without rows."""
        found: Column = np.zeros(self._count, dtype=column.dtype)
        np.maximum.at(found, self._groups, column)
        return found

    def smallest(self, column: Column) -> Column:
        """The largest number that there is for a group without rows."""
        found: Column = np.full(self._count, np.iinfo(column.dtype).max, dtype=column.dtype)
        np.minimum.at(found, self._groups, column)
        return found


def namespaces_held(levels: Sequence[Level]) -> set[NamespaceId]:
    """Every namespace that a level holds a block of."""
    held: set[NamespaceId] = set()
    for level in levels:
        numbers = np.unique(level.sealed.seals.namespace_of[published(level)])
        held |= {level.sealed.seals.namespaces[number] for number in numbers.tolist()}
    return held


def _latest_births(
    names: Sequence[NamespaceId], catalogue: Catalogue, now_s: int
) -> NDArray[np.int64]:
    """By namespace number: blocks created at this second or before are expired; 0 is never."""
    lives = [catalogue.ttl(name) for name in names]
    births = [0 if life is None else max(0, now_s - int(np.ceil(life))) for life in lives]
    return np.array(births, dtype=np.int64)
