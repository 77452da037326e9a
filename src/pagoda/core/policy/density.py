"""Hit density: the chain that promises the fewest hits for the room and time it takes goes first.

All blocks that a request was the last to use share its fate (core.policy.uses): its level and age
say what they are worth (core.policy.reuse). Blocks that several sessions share are worth more when
they are used often (core.policy.shared). Only leaves are dropped, blocks without a child here, so
that none outlives its parent. The order is exact: no block is sampled.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence

from pagoda.core.identity import ROOT, Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.blocks import Blocks
from pagoda.core.policy.naming import Naming
from pagoda.core.policy.shared import SharedBlocks
from pagoda.core.policy.uses import RankedUses, Use


class DensityOrder(Blocks):
    """Blocks by hit density, and those that go first."""

    uses: RankedUses

    def __init__(self, uses: RankedUses, shared: SharedBlocks) -> None:
        super().__init__(uses, shared)
        self.children: dict[Key, int] = {}  # how many are here, by their parent's key
        self.warm: list[tuple[float, int]] = []  # heat and slot of shared leaves, ascending
        # Those that would go for new blocks, and the scores they were named by; until a change.
        self._named: tuple[list[int], object] = ([], None)

    @classmethod
    def of(cls, blocks: Blocks, since: Mapping[int, int]) -> DensityOrder:
        """The order of blocks that had none, which are handed over: leaves by the turn in which
        they became what they are."""
        known = {*blocks.use.values(), *blocks._awaited.values()}
        order = cls(RankedUses.of(blocks.uses, known), blocks._shared)
        order.use, order.heat, order.parent = blocks.use, blocks.heat, blocks.parent
        order.slot_of, order._key, order._awaited = blocks.slot_of, blocks._key, blocks._awaited
        order.children = dict(Counter(blocks.parent.values()))
        order.children.pop(ROOT, None)
        leaves = [slot for slot, key in order._key.items() if key not in order.children]
        for slot in sorted(leaves, key=since.__getitem__):
            order._leaf(slot)
        return order

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], free: int) -> range:
        """How many new blocks of a request are worth more than what would go for them; see
        `core.policy.port.Policy`. Of what no request asked for, all; none of what follows a block
        that was refused before, or has gone."""
        if keys and parents[0] != ROOT and parents[0] not in self.slot_of:
            return range(0)
        missing = len(keys) - free
        if missing <= 0:
            return range(len(keys))
        use = self._awaited.get(keys[0]) or self._use_above(parents[0])
        if use is None or not use.asked:
            return range(len(keys))
        worse = Naming(self, missing, None, below=self.uses.score(use)).chosen
        self._named = worse, self.uses.model.scores
        return range(free + len(worse))

    def end(self, use: Use, level: int, *, beside: Key | None) -> None:
        self._named = [], None
        super().end(use, level, beside=beside)

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        self._named = [], None
        super().insert(slots, keys, parents)
        children = self.children
        leaf: int | None = None  # the last block, unless its child comes next
        for slot, key, parent in zip(slots, keys, parents, strict=True):
            if parent != ROOT:
                siblings = children.get(parent, 0)
                children[parent] = siblings + 1
                above = None if siblings else self.slot_of.get(parent)
                if above is not None and above == leaf:
                    leaf = None
                elif above is not None:
                    self._no_leaf(above)
            if leaf is not None:
                self._leaf(leaf)
            leaf = None if key in children else slot
        if leaf is not None:
            self._leaf(leaf)

    def remove(self, slots: Sequence[int]) -> None:
        """Blocks are no longer here."""
        self._named = [], None
        children = self.children
        freed: int | None = None  # lost its last child, and is a leaf unless it goes next
        for slot in slots:
            if slot != freed:
                if freed is not None:
                    self._leaf(freed)
                if self._key[slot] not in children:
                    self._no_leaf(slot)
            freed = None
            parent = self._forget(slot)
            if parent != ROOT:
                children[parent] -= 1
                if not children[parent]:
                    del children[parent]
                    freed = self.slot_of.get(parent)
        if freed is not None:
            self._leaf(freed)

    def victims(self, count: int, leases: Leases) -> list[int]:
        """Leaves of the least density; with each that is named its parent may become one. When
        all leaves are leased, blocks above them go."""
        first, scores = self._named
        if scores is self.uses.model.scores and len(first) >= count and not leases[first].any():
            return first[:count]
        chosen = Naming(self, count, leases).chosen
        if len(chosen) < count:
            named = set(chosen)
            rest = [s for s in reversed(self._key) if s not in named and leases[s] == 0]
            chosen += rest[: count - len(chosen)]
        return chosen

    # Leaves.

    def _attach(self, slots: Sequence[int], keys: Sequence[Key], use: Use) -> None:
        self._named = [], None
        children = self.children
        leaves = [slot for slot, key in zip(slots, keys, strict=True) if key not in children]
        for slot in leaves:
            self._no_leaf(slot)
        super()._attach(slots, keys, use)
        for slot in leaves:
            self._leaf(slot)

    def _leaf(self, slot: int) -> None:
        if slot in self.heat:
            insort(self.warm, (self.heat[slot], slot))
        else:
            self.uses.add_leaf(self.use[slot], slot)

    def _no_leaf(self, slot: int) -> None:
        if slot in self.heat:
            at = bisect_left(self.warm, (self.heat[slot], slot))
            if at < len(self.warm) and self.warm[at][1] == slot:
                del self.warm[at]
        elif slot in self.use[slot].leaves:
            self.uses.remove_leaf(self.use[slot], slot)
