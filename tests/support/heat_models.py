"""Hit density written down as plainly as it is defined: every worth is computed when it is asked
for, from whole histories, by loops. What is under test is held equal to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pagoda.core.identity import DIGEST_BYTES, ROOT, Key
from pagoda.core.policy.port import Ending, Hint, Request
from pagoda.core.policy.reuse import BINS, EDGES_S, NEUTRAL, WORTHLESS, ReuseModel
from pagoda.core.policy.shared import SharedBlocks, density_of, heat_of

CLOSE = 1e-9  # relative: what rounding may make of two equal worths


def key(*path: int) -> Key:
    """The block that a path of numbers below 255 leads to; its parent has one number less."""
    return Key(bytes(number + 1 for number in path).rjust(DIGEST_BYTES, b"\0"))


def chain(*path: int) -> list[Key]:
    """The blocks of a path, first block first."""
    return [key(*path[: depth + 1]) for depth in range(len(path))]


def request(keys: Sequence[Key], at_s: float = 0.0, hint: Hint = Hint.NONE) -> Request:
    """A request of these blocks."""
    return Request(keys=keys, at_s=at_s, tokens=16 * len(keys), hint=hint)


def ending(keys: Sequence[Key], at_s: float = 0.0, hint: Hint = Hint.NONE) -> Ending:
    """The end of a request that leaves these blocks."""
    return Ending(keys=keys, at_s=at_s, output_tokens=16, hint=hint)


def bin_of(age_s: float) -> int:
    """The bin of an age: the last one that has begun by then."""
    return max(number for number in range(BINS) if number == 0 or EDGES_S[number] <= age_s)


@dataclass(eq=False)
class NaiveUse:
    """A request's use, and what it waits for."""

    level: int
    at_s: float
    asked: bool
    open: bool
    awaits: Key | None = None


@dataclass
class NaiveBlock:
    """A block that is here."""

    key: Key
    parent: Key
    use: NaiveUse
    heat: float | None = None


@dataclass
class NaiveOrder:
    """Blocks by slot, and nothing that could be out of date."""

    model: ReuseModel
    shared: SharedBlocks
    now_s: float = 0.0
    here: dict[int, NaiveBlock] = field(default_factory=dict)
    awaiting: list[NaiveUse] = field(default_factory=list)  # the newest last

    def begin(self, keys: Sequence[Key], level: int, at_s: float) -> NaiveUse:
        self.now_s = max(self.now_s, at_s)
        use = NaiveUse(level, self.now_s, asked=True, open=True)
        for wanted in keys:
            slot = self.slot_of(wanted)
            if slot is None:
                use.awaits = wanted
                self.awaiting = [other for other in self.awaiting if other.awaits != wanted]
                self.awaiting.append(use)
                break
            self._use(slot, use)
        return use

    def end(self, use: NaiveUse, level: int, *, beside: Key | None) -> None:
        use.open, use.level = False, level
        self.awaiting = [other for other in self.awaiting if other is not use]
        slot = None if beside is None else self.slot_of(beside)
        if slot is not None:
            self._use(slot, NaiveUse(WORTHLESS, self.now_s, asked=True, open=False))

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        stray = NaiveUse(NEUTRAL, self.now_s, asked=False, open=False)
        for slot, new, parent in zip(slots, keys, parents, strict=True):
            waiting = [use for use in self.awaiting if use.awaits == new]
            above = self.slot_of(parent)
            if waiting:
                use = waiting[0]
                self.awaiting.remove(use)
            else:
                use = stray if above is None else self.here[above].use
            self.here[slot] = NaiveBlock(new, parent, use)
            self._use(slot, use)

    def touch(self, slots: Sequence[int]) -> None:
        stray = NaiveUse(NEUTRAL, self.now_s, asked=False, open=False)
        for slot in slots:
            if not self.here[slot].use.asked:
                self._use(slot, stray)

    def remove(self, slots: Sequence[int]) -> None:
        for slot in slots:
            del self.here[slot]

    def slot_of(self, wanted: Key) -> int | None:
        return next((slot for slot, block in self.here.items() if block.key == wanted), None)

    def age_bin(self, slot: int) -> int:
        return bin_of(self.now_s - self.here[slot].use.at_s)

    def worth(self, slot: int) -> float:
        block = self.here[slot]
        if block.heat is not None:
            return density_of(block.heat, self.now_s)
        return self.model.scores[block.use.level][self.age_bin(slot)]

    def leaves(self, of: Iterable[int]) -> set[int]:
        """Those of some slots that no other one of them has for its parent."""
        slots = set(of)
        parents = {self.here[slot].parent for slot in slots} - {ROOT}
        return {slot for slot in slots if self.here[slot].key not in parents}

    def check_victims(self, victims: Sequence[int], count: int, leased: set[int]) -> None:
        """One by one: each is a leaf of what is left, and no other leaf is worth less; of
        equal ones that were leaves from the start and are not shared, none is older. When only
        leased leaves are left, any block that is not leased may go."""
        left = set(self.here)
        assert len(victims) == min(count, len(left - leased))
        at_first = {s for s in self.leaves(left) if self.here[s].heat is None}
        for victim in victims:
            assert victim in left - leased
            able = self.leaves(left) - leased
            if able:
                worth = self.worth(victim)
                assert victim in able, "a block goes before its child"
                assert worth <= min(map(self.worth, able)) * (1 + CLOSE), "another is worth less"
                if victim in at_first:
                    equal = [s for s in able & at_first if self.worth(s) == worth]
                    assert self.age_bin(victim) == max(map(self.age_bin, equal))
            left.remove(victim)

    def worse(self, below: float) -> int:
        """How many blocks could go, leaf by leaf, that are worth less than this."""
        left = set(self.here)
        while able := {slot for slot in self.leaves(left) if self.worth(slot) < below}:
            left -= able
        return len(self.here) - len(left)

    def _use(self, slot: int, use: NaiveUse) -> None:
        block = self.here[slot]
        block.use = use
        heat = self.shared.heat(block.key)
        if heat is not None:
            block.heat = max(heat, heat_of(self.worth_of(use), self.now_s))

    def worth_of(self, use: NaiveUse) -> float:
        return self.model.scores[use.level][bin_of(self.now_s - use.at_s)]
