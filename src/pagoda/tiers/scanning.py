"""A scan's headers, checked in batches and gathered into columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pagoda.seal.envelope import Envelope
from pagoda.seal.header import Seal
from pagoda.seal.headers import Headers, sift
from pagoda.tiers.port import Tier
from pagoda.tiers.seals import SealTable

Number = TypeVar("Number", bound=np.generic)

_BATCH_HEADERS = 4096
_LAST_GENERATION = 2**63  # no honest slot gets there; above it, counting on would overflow


@dataclass(frozen=True, slots=True)
class Found:
    """What a scan found: sound blocks by slot, and slots of damaged headers.

    `keys`, and `parents` before them in their chains, lie one behind the other, 32 bytes each.
    `closed` are slots of sound blocks that
    cannot be opened here, for want of a key or because they are not encrypted: nothing leads to
    them, so that their blocks are stored anew, and their slots are used again. `floor` is above
    every generation that any sound header names.
    """

    slots: NDArray[np.int32]
    keys: bytes
    parents: bytes
    generations: NDArray[np.uint64]
    created_ms: NDArray[np.uint64]
    depths: NDArray[np.uint32]
    damaged: list[int]
    closed: list[int]
    floor: int


def scan_tier(tier: Tier, seals: SealTable, envelope: Envelope) -> Found:
    """Read all headers of `tier`; those of blocks that `envelope` opens are remembered in
    `seals`. A header whose payload cannot fit its slot is damaged."""
    columns = _Columns()
    damaged: list[int] = []
    headers = tier.scan()
    while batch := list(islice(headers, _BATCH_HEADERS)):
        slots = [slot for slot, _ in batch]
        sifted = sift(slots, [header for _, header in batch], slab_id=tier.identity)
        plain, bad = _fitting(sifted.plain, tier.geometry.slot_bytes)
        damaged += sifted.damaged + bad
        if envelope.cipher is None:
            seals.put_headers(plain)
            columns.add_headers(plain)
        else:
            columns.close_headers(plain)
        for slot, seal in sifted.others:
            if seal.stored_bytes > tier.geometry.slot_bytes or seal.generation > _LAST_GENERATION:
                damaged.append(slot)
            elif envelope.refusal(seal):
                columns.close(slot, seal)
            else:
                seals.put(slot, seal)
                columns.add(slot, seal)
    return columns.found(damaged)


def _fitting(headers: Headers, slot_bytes: int) -> tuple[Headers, list[int]]:
    """Headers that can be true, and the slots of the others."""
    fits = headers["stored_bytes"] <= slot_bytes
    fits &= headers["generation"] <= _LAST_GENERATION
    bad: list[int] = headers["slot"][~fits].tolist()
    return headers[fits], bad


class _Columns:
    """Grows by batches; the headers themselves are not kept."""

    def __init__(self) -> None:
        self._slots: list[NDArray[np.int32]] = []
        self._keys: list[bytes] = []
        self._parents: list[bytes] = []
        self._generations: list[NDArray[np.uint64]] = []
        self._created_ms: list[NDArray[np.uint64]] = []
        self._depths: list[NDArray[np.uint32]] = []
        self._closed: list[int] = []
        self._floor = 0

    def close_headers(self, headers: Headers) -> None:
        if len(headers):
            self._closed += headers["slot"].tolist()
            self._floor = max(self._floor, int(headers["generation"].max()) + 1)

    def close(self, slot: int, seal: Seal) -> None:
        self._closed.append(slot)
        self._floor = max(self._floor, seal.generation + 1)

    def add_headers(self, headers: Headers) -> None:
        self._slots.append(headers["slot"].astype(np.int32))
        self._keys.append(np.ascontiguousarray(headers["key"]).tobytes())
        self._parents.append(np.ascontiguousarray(headers["parent"]).tobytes())
        self._generations.append(headers["generation"].astype(np.uint64))
        self._created_ms.append(headers["created_ms"].astype(np.uint64))
        self._depths.append(headers["depth"].astype(np.uint32))

    def add(self, slot: int, seal: Seal) -> None:
        self._slots.append(np.array([slot], dtype=np.int32))
        self._keys.append(seal.key)
        self._parents.append(seal.parent)
        self._generations.append(np.array([seal.generation], dtype=np.uint64))
        self._created_ms.append(np.array([seal.created_ms], dtype=np.uint64))
        self._depths.append(np.array([seal.depth], dtype=np.uint32))

    def found(self, damaged: list[int]) -> Found:
        generations = _joined(self._generations, np.uint64)
        return Found(
            slots=_joined(self._slots, np.int32),
            keys=b"".join(self._keys),
            parents=b"".join(self._parents),
            generations=generations,
            created_ms=_joined(self._created_ms, np.uint64),
            depths=_joined(self._depths, np.uint32),
            damaged=damaged,
            closed=self._closed,
            floor=max(self._floor, int(generations.max()) + 1 if len(generations) else 0),
        )


def _joined(columns: Sequence[NDArray[Number]], dtype: type[Number]) -> NDArray[Number]:
    return np.concatenate(columns) if columns else np.zeros(0, dtype=dtype)
