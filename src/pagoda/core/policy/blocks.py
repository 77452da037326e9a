"""The blocks of a tier, or of its shadow, and the request that was the last to use each."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.identity import Key
from pagoda.core.policy.reuse import NEUTRAL, WORTHLESS
from pagoda.core.policy.shared import SharedBlocks, heat_of
from pagoda.core.policy.uses import Use, Uses


class Blocks:
    """Slots, whose blocks share the fate of their last use. Requests come by key, blocks by
    slot. Subclasses keep up what they need of the order."""

    def __init__(self, uses: Uses, shared: SharedBlocks) -> None:
        self.uses = uses
        self.slot_of: dict[Key, int] = {}
        self.parent: dict[int, Key] = {}
        self.use: dict[int, Use] = {}
        self.heat: dict[int, float] = {}  # of shared blocks
        self._key: dict[int, Key] = {}
        self._shared = shared
        self._awaited: dict[Key, Use] = {}  # by the first block that a request lacks

    def prefix(self, keys: Sequence[Key]) -> list[int]:
        """Slots of the leading blocks of a chain that are here."""
        slot_of, slots = self.slot_of, []
        for key in keys:
            slot = slot_of.get(key)
            if slot is None:
                break
            slots.append(slot)
        return slots

    def begin(self, keys: Sequence[Key], level: int, at_s: float) -> Use:
        """A request of this level uses a chain."""
        self.uses.age(at_s)
        use = self.uses.new(level, asked=True)
        slots = self.prefix(keys)
        if len(slots) < len(keys):
            use.awaits = keys[len(slots)]
            self._awaited[use.awaits] = use
        self._attach(slots, keys[: len(slots)], use)
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
            self._attach([slot], [beside], aside)

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        """New blocks belong to the request that waits for them, or that used their parents."""
        awaited, use_of = self._awaited, self.use
        use = stray = last = None
        for slot, key, parent in zip(slots, keys, parents, strict=True):
            if key in awaited:
                use = awaited.pop(key)
            elif use is None or parent != last:
                use = self._use_above(parent)
            if use is None:
                use = stray = stray or self.uses.new(NEUTRAL, asked=False)
            last = key
            self.slot_of[key] = slot
            self._key[slot] = key
            self.parent[slot] = parent
            use_of[slot] = use
            use.slots += 1
        self._warm(slots, keys)

    def touch(self, slots: Sequence[int]) -> None:
        """Slots are used by something that is no request; what requests use is told above."""
        strays = [slot for slot in slots if not self.use[slot].asked]
        if strays:
            use = self.uses.new(NEUTRAL, asked=False)
            self._attach(strays, [self._key[slot] for slot in strays], use)

    def tracked(self) -> set[int]:
        """The slots that have blocks."""
        return set(self._key)

    def _attach(self, slots: Sequence[int], keys: Sequence[Key], use: Use) -> None:
        """Blocks belong to a new use from now on."""
        for slot in slots:
            self.use[slot].slots -= 1
        self.use.update(dict.fromkeys(slots, use))
        use.slots += len(slots)
        self._warm(slots, keys)

    def _warm(self, slots: Sequence[int], keys: Sequence[Key]) -> None:
        """The shared ones of some blocks are worth what their use promises now, at least."""
        heats = self._shared.heats(keys)
        if heats.count(None) < len(heats):
            for slot, heat in zip(slots, heats, strict=True):
                if heat is not None:
                    promised = heat_of(self.uses.score(self.use[slot]), self.uses.now_s)
                    self.heat[slot] = max(heat, promised)

    def _forget(self, slot: int) -> Key:
        """A block is no longer here; returns its parent."""
        self.use.pop(slot).slots -= 1
        self.heat.pop(slot, None)
        del self.slot_of[self._key.pop(slot)]
        return self.parent.pop(slot)

    def _use_above(self, parent: Key) -> Use | None:
        above = self.slot_of.get(parent)
        return None if above is None else self.use[above]
