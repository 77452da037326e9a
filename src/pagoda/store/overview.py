"""What the device and the tiers hold, and how the tiers stand. Looking changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagoda.core.errors import RequestError
from pagoda.core.holdings import Holding, Lookup, Place, Selection, TierStatus
from pagoda.core.identity import Key
from pagoda.store import census
from pagoda.store.catalogue import Catalogue
from pagoda.store.scopes import Served
from pagoda.store.store import Store


class Shown(Protocol):
    """The engine's own blocks, to be looked at."""

    def has(self, key: Key) -> bool:
        """Whether a block is cached; changes nothing."""
        ...

    def holdings(
        self, catalogue: Catalogue, selection: Selection, *, generation: str, block_tokens: int
    ) -> list[Holding]:
        """What is cached of each namespace."""
        ...


class Overview:
    """Looks at one engine's caches. Owner's thread."""

    def __init__(
        self, store: Store, catalogue: Catalogue, device: Shown, *, served: Served
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._device = device
        self._served = served

    def holdings(self, selection: Selection) -> list[Holding]:
        """Blocks by tier and namespace, fastest tier first."""
        if selection.below is not None:
            raise RequestError("a prompt is looked up, not listed", param="prompt")
        generation, block_tokens = self._served.generation, self._served.block_tokens
        found = self._device.holdings(
            self._catalogue, selection, generation=generation, block_tokens=block_tokens
        )
        for level in self._store.levels():
            found += census.holdings(
                level,
                self._catalogue,
                selection,
                generation=generation,
                block_tokens=block_tokens,
            )
        return found

    def lookup(self, prompt: Sequence[int], salt: str) -> Lookup:
        """How much of a prompt is resident where. No block counts as used."""
        keys = self._served.keys(prompt, salt)
        names = ["device", *(level.name for level in self._store.levels())]
        held = [[self._device.has(key) for key in keys]]
        held += [
            [level.state.slot_of(key) is not None for key in keys] for level in self._store.levels()
        ]
        fastest = [
            next((i for i, row in enumerate(held) if row[at]), None) for at in range(len(keys))
        ]
        resident = next((at for at, tier in enumerate(fastest) if tier is None), len(keys))
        if self._store.quarantine.bars(self._served.namespace_of(salt)):
            resident = next((at for at in range(resident) if not held[0][at]), resident)
        width = self._served.block_tokens
        return Lookup(
            prompt_tokens=len(prompt),
            block_tokens=width,
            resident_tokens=resident * width,
            places=tuple(
                Place(tier=name, held=sum(row) * width, first=fastest[:resident].count(i) * width)
                for i, (name, row) in enumerate(zip(names, held, strict=True))
            ),
        )

    def tiers(self) -> list[TierStatus]:
        """How each tier stands, fastest first."""
        return [
            TierStatus(
                tier=level.name,
                standing=level.trust.standing,
                blocks=level.state.published_count(),
                slots=level.state.slots,
                pinned=level.residency.pinned.count(),
                policy=level.residency.policy,
                leader=level.residency.leader,
            )
            for level in self._store.levels()
        ]
