"""The device's blocks as administration sees them: few enough to look at one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

from pagoda.core.holdings import UNKNOWN, Holding, Selection
from pagoda.core.identity import Key
from pagoda.core.residency import Residency
from pagoda.engine.device import TIER, Birth, DeviceBlocks
from pagoda.store.admin import Device
from pagoda.store.catalogue import Catalogue


class DeviceShelf(Device):
    """See `store.admin.Device`. A block that running requests hold stays theirs: it is only not
    found by others any more."""

    def __init__(self, device: DeviceBlocks, *, block_bytes: int) -> None:
        self._device = device
        self._block_bytes = block_bytes

    @property
    def residency(self) -> Residency:
        return self._device.residency

    def has(self, key: Key) -> bool:
        return self._device.state.slot_of(key) is not None

    def links(self) -> Iterator[tuple[Key, Key]]:
        return ((key, birth.parent) for _, key, birth in self._published())

    def drop(self, selection: Selection, keys: frozenset[Key] | None) -> int:
        return self._drop(
            lambda key, birth: _meets(birth, selection) and (keys is None or key in keys)
        )

    def expire(self, catalogue: Catalogue, now_s: int) -> int:
        def over(key: Key, birth: Birth) -> bool:
            del key
            ttl_s = catalogue.ttl(birth.namespace)
            return ttl_s is not None and birth.created_s + math.ceil(ttl_s) <= now_s

        return self._drop(over)

    def holdings(
        self, catalogue: Catalogue, selection: Selection, *, generation: str, block_tokens: int
    ) -> list[Holding]:
        births: dict[bytes, list[Birth]] = defaultdict(list)
        for _, _, birth in self._published():
            if _meets(birth, selection):
                births[birth.namespace].append(birth)
        return [
            self._holding(some, catalogue, generation=generation, block_tokens=block_tokens)
            for some in births.values()
        ]

    def _holding(
        self, some: list[Birth], catalogue: Catalogue, *, generation: str, block_tokens: int
    ) -> Holding:
        name = some[0].namespace
        origin = catalogue.origin(name)
        return Holding(
            tier=TIER,
            namespace=name.hex(),
            tenant=UNKNOWN if origin is None else origin.tenant,
            current=origin is not None and origin.generation == generation,
            blocks=len(some),
            size_bytes=len(some) * self._block_bytes,
            tokens=len(some) * block_tokens,
            longest_chain=max(birth.depth for birth in some) + 1,
            oldest_s=min(birth.created_s for birth in some),
            newest_s=max(birth.created_s for birth in some),
        )

    def _drop(self, meets: Callable[[Key, Birth], bool]) -> int:
        blocks = [block for block, key, birth in self._published() if meets(key, birth)]
        self._device.residency.retire(blocks)
        return len(blocks)

    def _published(self) -> Iterator[tuple[int, Key, Birth]]:
        births = self._device.births
        published = self._device.state.published()
        return ((block, key, births[block]) for key, block in published if block in births)


def _meets(birth: Birth, selection: Selection) -> bool:
    names, before_s = selection.namespaces, selection.before_s
    return (names is None or birth.namespace in names) and (
        before_s is None or birth.created_s < before_s
    )
