"""Hit density: the chain that promises the fewest hits for the room and time it takes goes first.

All blocks that a request was the last to use share its fate (core.policy.uses): its level and age
say what they are worth (core.policy.reuse). Blocks that several sessions share are worth more when
they are used often (core.policy.shared). Only leaves are dropped, blocks without a child here, so
that none outlives its parent. The order is exact: no block is sampled.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from pagoda.core.identity import ROOT, Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.naming import Naming
from pagoda.core.policy.reuse import NEUTRAL, WORTHLESS, ReuseModel
from pagoda.core.policy.shared import SharedBlocks, heat_of
from pagoda.core.policy.uses import Twins, Use, Uses


class DensityOrder:
    """Slots of one tier, or of its shadow, by hit density. Requests come by key, blocks by
    slot."""

    def __init__(self, model: ReuseModel, shared: SharedBlocks) -> None:
        self.uses = Uses(model)
        self._model = model
        self.slot_of: dict[Key, int] = {}
        self.parent: dict[int, Key] = {}
        self.use: dict[int, Use] = {}
        self.children: dict[Key, int] = {}  # how many are here, by their parent's key
        self.heat: dict[int, float] = {}  # of shared blocks
        self.warm: list[tuple[float, int]] = []  # heat and slot of shared leaves, ascending
        self._key: dict[int, Key] = {}
        self._shared = shared
        self._awaited: dict[Key, Use] = {}  # by the first block that a request lacks

    # Requests.

    def begin(self, keys: Sequence[Key], level: int, at_s: float) -> Use:
        """A request of this level uses a chain."""
        self.uses.age(at_s)
        use = self.uses.new(level, asked=True)
        for key in keys:
            slot = self.slot_of.get(key)
            if slot is None:
                use.awaits = key
                self._awaited[key] = use
                break
            self._attach(slot, key, use)
        return use

    def end(self, use: Use, level: int, *, beside: Key | None) -> None:
        """It is over, and its level is known better. `beside` is a block of its prompt that
        no chain goes on from."""
        use.open = False
        if use.awaits is not None and self._awaited.get(use.awaits) is use:
            del self._awaited[use.awaits]
        if level != use.level:
            self.uses.relevel(use, level)
        slot = None if beside is None else self.slot_of.get(beside)
        if beside is not None and slot is not None:
            aside = self.uses.new(WORTHLESS, asked=True)
            aside.open = False
            self._attach(slot, beside, aside)

    # Blocks.

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], free: int) -> range:
        """How many new blocks of a request are worth more than what would go for them; see
        `core.policy.port.Policy`. Of what no request asked for, all; none of what follows a block
        that was refused before, or has gone."""
        if keys and parents[0] != ROOT and parents[0] not in self.slot_of:
            return range(0)
        missing = len(keys) - free
        use = self._use_of_new(keys[0], parents[0]) if missing > 0 else None
        if use is None or not use.asked:
            return range(len(keys))
        worse = Naming(self, missing, None, below=self.uses.score(use)).chosen
        return range(free + len(worse))

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        """New blocks belong to the request that waits for them, or that used their parents."""
        stray: Use | None = None
        awaited, slot_of = self._awaited, self.slot_of
        for slot, key, parent in zip(slots, keys, parents, strict=True):
            above = slot_of.get(parent)
            use = awaited.pop(key, None)
            if use is None and above is not None:
                use = self.use[above]
            if use is None:
                use = stray = stray or self.uses.new(NEUTRAL, asked=False)
            slot_of[key] = slot
            self._key[slot] = key
            self.parent[slot] = parent
            if parent != ROOT:
                self.children[parent] = self.children.get(parent, 0) + 1
                if above is not None:
                    self._no_leaf(above)
            self._attach(slot, key, use)

    def touch(self, slots: Sequence[int]) -> None:
        """Slots are used by something that is no request; what requests use is told above."""
        strays = [slot for slot in slots if not self.use[slot].asked]
        if strays:
            use = self.uses.new(NEUTRAL, asked=False)
            for slot in strays:
                self._attach(slot, self._key[slot], use)

    def remove(self, slots: Sequence[int]) -> None:
        """Blocks are no longer here."""
        for slot in slots:
            self._no_leaf(slot)
            self.use.pop(slot).slots -= 1
            self.heat.pop(slot, None)
            del self.slot_of[self._key.pop(slot)]
            parent = self.parent.pop(slot)
            if parent != ROOT:
                self._lose_child(parent)

    def tracked(self) -> set[int]:
        """The slots that have blocks."""
        return set(self._key)

    def victims(self, count: int, leases: Leases) -> list[int]:
        """Leaves of the least density; with each that is named its parent may become one. When
        all leaves are leased, blocks above them go."""
        chosen = Naming(self, count, leases).chosen
        if len(chosen) < count:
            named = set(chosen)
            rest = [s for s in reversed(self._key) if s not in named and leases[s] == 0]
            chosen += rest[: count - len(chosen)]
        return chosen

    def copy(self) -> tuple[DensityOrder, Twins]:
        """The same order for a shadow, and what became of its uses there."""
        twins = Twins()
        copy = DensityOrder(self._model, self._shared)
        copy.uses = self.uses.copy(twins)
        copy.use = {slot: twins[use] for slot, use in self.use.items()}
        copy._awaited = {key: twins[use] for key, use in self._awaited.items()}
        copy._key = dict(self._key)
        copy.slot_of, copy.parent = dict(self.slot_of), dict(self.parent)
        copy.children, copy.heat = dict(self.children), dict(self.heat)
        copy.warm = list(self.warm)
        return copy, twins

    def _use_of_new(self, key: Key, parent: Key) -> Use | None:
        """The use that a new block falls to."""
        use = self._awaited.get(key)
        if use is None and parent in self.slot_of:
            use = self.use[self.slot_of[parent]]
        return use

    # Leaves.

    def _attach(self, slot: int, key: Key, use: Use) -> None:
        old = self.use.get(slot)
        if old is use:
            return
        if old is not None:
            self._no_leaf(slot)
            old.slots -= 1
        self.use[slot] = use
        use.slots += 1
        heat = self._shared.heat(key)
        if heat is not None:
            promised = heat_of(self.uses.score(use), self.uses.now_s)
            self.heat[slot] = max(heat, promised)
        if key not in self.children:
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

    def _lose_child(self, parent: Key) -> None:
        self.children[parent] -= 1
        if not self.children[parent]:
            del self.children[parent]
            above = self.slot_of.get(parent)
            if above is not None:
                self._leaf(above)
