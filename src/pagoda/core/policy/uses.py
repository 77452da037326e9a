"""Uses of blocks by requests, in buckets of equal level and age."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from pagoda.core.identity import Key
from pagoda.core.policy.reuse import BINS, EDGES_S, ReuseModel

Place = tuple[float, int, int, int]  # score, negative bin, level, number of the use


class Use:
    """What the blocks have in common that one request was the last to use."""

    __slots__ = ("asked", "at_s", "awaits", "bin", "leaves", "level", "number", "open", "slots")

    def __init__(self, number: int, level: int, at_s: float, *, asked: bool) -> None:
        self.number = number  # later ones have higher ones
        self.level = level
        self.at_s = at_s
        self.asked = asked  # False: no request asked for these blocks
        self.open = asked  # the request is not over: more blocks may come
        self.awaits: Key | None = None  # the first block that it lacked
        self.bin = 0  # of its age, where uses are ranked
        self.slots = 0  # how many are here
        self.leaves: dict[int, None] = {}  # slots without a child here, the newest leaf last

    def copy(self) -> Use:
        """The same use, of the same slots elsewhere, without leaves."""
        twin = Use(self.number, self.level, self.at_s, asked=self.asked)
        twin.open, twin.slots = self.open, self.slots
        twin.awaits = self.awaits
        return twin


class Twins(dict[Use, Use]):
    """Copies of uses, by what they are copies of."""

    def __missing__(self, use: Use) -> Use:
        twin = self[use] = use.copy()
        return twin


class Uses:
    """Uses, and the score that a model gives their level and age now."""

    def __init__(self, model: ReuseModel) -> None:
        self.now_s = 0.0
        self.model = model
        self.count = 0

    def new(self, level: int, *, asked: bool) -> Use:
        """A use that begins now."""
        use = Use(self.count, level, self.now_s, asked=asked)
        self.count += 1
        return use

    def score(self, use: Use) -> float:
        return self.model.scores[use.level][self.bin_now(use)]

    def bin_now(self, use: Use) -> int:
        """The bin of its age."""
        return min(bisect_right(EDGES_S, self.now_s - use.at_s), BINS) - 1

    def relevel(self, use: Use, level: int) -> None:
        """More is known of a request."""
        use.level = level

    def age(self, now_s: float) -> None:
        """Time has passed."""
        self.now_s = max(self.now_s, now_s)


class RankedUses(Uses):
    """Those of them that have leaves in the order of their scores."""

    def __init__(self, model: ReuseModel) -> None:
        super().__init__(model)
        # By level and bin, those with leaves and their numbers, oldest first.
        self._buckets: dict[tuple[int, int], list[tuple[int, Use]]] = {}
        # Their scores, negative bins and levels, ascending; and the table that these are from.
        self._ranked: list[tuple[float, int, int]] = []
        self._scores = model.scores
        # By bin, oldest first; from the last bin nothing moves on.
        self._aging: list[deque[Use]] = [deque() for _ in range(BINS - 1)]

    @classmethod
    def of(cls, uses: Uses, known: Iterable[Use]) -> RankedUses:
        """The same from now on, none of which has leaves yet; nothing else is `known` of."""
        ranked = cls(uses.model)
        ranked.now_s, ranked.count = uses.now_s, uses.count
        for use in sorted(known, key=lambda use: use.number):
            use.bin = uses.bin_now(use)
            if use.bin < BINS - 1:
                ranked._aging[use.bin].append(use)
        return ranked

    def new(self, level: int, *, asked: bool) -> Use:
        use = super().new(level, asked=asked)
        self._aging[0].append(use)
        return use

    def score(self, use: Use) -> float:
        return self.model.scores[use.level][use.bin]

    def ascending(self) -> Iterator[tuple[float, Sequence[tuple[int, Use]]]]:
        """Uses with leaves and their numbers in buckets of one score, lowest first; of equal ones
        the oldest."""
        if self._scores is not self.model.scores:
            self._scores = scores = self.model.scores
            self._ranked = sorted((scores[level][age], -age, level) for level, age in self._buckets)
        for score, age, level in self._ranked:
            yield score, self._buckets[level, -age]

    def place(self, use: Use) -> Place:
        """Where a use stands among those with leaves; no two are equal."""
        return (self.score(use), -use.bin, use.level, use.number)

    def add_leaf(self, use: Use, slot: int) -> None:
        if not use.leaves:
            self._file(use)
        use.leaves[slot] = None

    def remove_leaf(self, use: Use, slot: int) -> None:
        del use.leaves[slot]
        if not use.leaves:
            self._unfile(use)

    def relevel(self, use: Use, level: int) -> None:
        self._move(use, level, use.bin)

    def age(self, now_s: float) -> None:
        """Time has passed: move uses on whose age has reached another bin."""
        super().age(now_s)
        now_s = self.now_s
        for age in range(BINS - 2, -1, -1):  # the oldest first: they come before younger ones
            queue = self._aging[age]
            while queue and queue[0].at_s <= now_s - EDGES_S[age + 1]:
                use = queue.popleft()
                if use.slots or use.open:
                    self._move(use, use.level, max(age + 1, self.bin_now(use)))
                    if use.bin < BINS - 1:
                        self._aging[use.bin].append(use)

    def _move(self, use: Use, level: int, age: int) -> None:
        if use.leaves:
            self._unfile(use)
        use.level, use.bin = level, age
        if use.leaves:
            self._file(use)

    def _file(self, use: Use) -> None:
        entry = (use.number, use)
        bucket = self._buckets.get((use.level, use.bin))
        if bucket is None:
            self._buckets[use.level, use.bin] = [entry]
            insort(self._ranked, self._rank(use))
        elif bucket[-1] < entry:
            bucket.append(entry)
        else:
            insort(bucket, entry)

    def _unfile(self, use: Use) -> None:
        bucket = self._buckets[use.level, use.bin]
        # Uses that age are the first of their buckets.
        del bucket[0 if bucket[0][1] is use else bisect_left(bucket, (use.number,))]
        if not bucket:
            del self._buckets[use.level, use.bin]
            del self._ranked[bisect_left(self._ranked, self._rank(use))]

    def _rank(self, use: Use) -> tuple[float, int, int]:
        """Where the bucket of a use stands."""
        return (self._scores[use.level][use.bin], -use.bin, use.level)
