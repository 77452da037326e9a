"""Blocks as hit density would have them, without their order: for a tier where another policy
leads. The order is made when it is wanted, and is the one that would have been kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from pagoda.core.identity import Key
from pagoda.core.policy.blocks import Blocks
from pagoda.core.policy.density import DensityOrder
from pagoda.core.policy.shared import SharedBlocks
from pagoda.core.policy.uses import Twins, Use, Uses


class Ledger(Blocks):
    """Which use each block belongs to, and since when it would have stood where it stands among
    the leaves of that use, if it is one."""

    def __init__(self, uses: Uses, shared: SharedBlocks) -> None:
        super().__init__(uses, shared)
        self._turns = count()
        self._since: dict[int, int] = {}  # by slot; of no meaning for blocks that have a child

    @classmethod
    def of(cls, order: DensityOrder) -> tuple[Ledger, Twins]:
        """The blocks of an order, which goes its own way from now on, and copies of its uses."""
        twins = Twins()
        ledger = cls(Uses(order.uses.model), order._shared)
        ledger.uses.now_s, ledger.uses.count = order.uses.now_s, order.uses.count
        ledger.use = {slot: twins[use] for slot, use in order.use.items()}
        ledger._awaited = {key: twins[use] for key, use in order._awaited.items()}
        ledger._key, ledger.slot_of = dict(order._key), dict(order.slot_of)
        ledger.parent, ledger.heat = dict(order.parent), dict(order.heat)
        ledger._since = dict.fromkeys(order.use, -1)
        for use in set(order.use.values()):
            ledger._since.update(zip(use.leaves, ledger._turns, strict=False))
        return ledger, twins

    def ordered(self) -> DensityOrder:
        """The order of these blocks. Their uses are its own from now on, and the ledger is
        closed."""
        return DensityOrder.of(self, self._since)

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        super().insert(slots, keys, parents)
        self._since.update(zip(slots, self._turns, strict=False))

    def remove(self, slots: Sequence[int]) -> None:
        """Blocks are no longer here. A parent that loses its last child becomes a leaf."""
        since, slot_of = self._since, self.slot_of
        for slot in slots:
            del since[slot]
            above = slot_of.get(self._forget(slot))
            if above is not None:
                since[above] = next(self._turns)

    def _attach(self, slots: Sequence[int], keys: Sequence[Key], use: Use) -> None:
        super()._attach(slots, keys, use)
        self._since.update(zip(slots, self._turns, strict=False))
