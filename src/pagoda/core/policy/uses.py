"""Uses of blocks by requests, in buckets of equal level and age."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator, Sequence

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
        self.bin = 0
        self.slots = 0  # how many are here
        self.leaves: dict[int, None] = {}  # slots without a child here, the newest leaf last

    def copy(self) -> Use:
        """The same use, of the same slots in another order."""
        twin = Use(self.number, self.level, self.at_s, asked=self.asked)
        twin.open, twin.bin, twin.slots = self.open, self.bin, self.slots
        twin.awaits = self.awaits
        twin.leaves = dict(self.leaves)
        return twin


class Twins(dict[Use, Use]):
    """Copies of uses, by what they are copies of."""

    def __missing__(self, use: Use) -> Use:
        twin = self[use] = use.copy()
        return twin


class Uses:
    """All uses, and those that have leaves by the score that a model gives their level and bin
    of age."""

    def __init__(self, model: ReuseModel) -> None:
        self.now_s = 0.0
        self._model = model
        self._count = 0
        # By level and bin, those with leaves and their numbers, oldest first.
        self._buckets: dict[tuple[int, int], list[tuple[int, Use]]] = {}
        # By bin, oldest first; from the last bin nothing moves on.
        self._aging: list[deque[Use]] = [deque() for _ in range(BINS - 1)]

    def new(self, level: int, *, asked: bool) -> Use:
        """A use that begins now."""
        use = Use(self._count, level, self.now_s, asked=asked)
        self._count += 1
        self._aging[0].append(use)
        return use

    def score(self, use: Use) -> float:
        return self._model.scores[use.level][use.bin]

    def ascending(self) -> Iterator[tuple[float, Sequence[tuple[int, Use]]]]:
        """Uses with leaves and their numbers in buckets of one score, lowest first; of equal ones
        the oldest."""
        scores = self._model.scores
        for score, age, level in sorted(
            [(scores[level][age], -age, level) for level, age in self._buckets]
        ):
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
        """More is known of a request."""
        self._move(use, level, use.bin)

    def age(self, now_s: float) -> None:
        """Time has passed: move uses on whose age has reached another bin."""
        self.now_s = now_s = max(self.now_s, now_s)
        for age in reversed(range(BINS - 1)):  # the oldest first: they come before younger ones
            queue, edge_s = self._aging[age], now_s - EDGES_S[age + 1]
            while queue and queue[0].at_s <= edge_s:
                use = queue.popleft()
                if use.slots or use.open:
                    to = bisect_right(EDGES_S, now_s - use.at_s) - 1
                    self._move(use, use.level, max(age + 1, min(to, BINS - 1)))
                    if use.bin < BINS - 1:
                        self._aging[use.bin].append(use)

    def copy(self, twins: Twins) -> Uses:
        """The same uses for another order: their `twins`, which are made as they are met."""
        copy = Uses(self._model)
        copy.now_s, copy._count = self.now_s, self._count
        copy._buckets = {
            place: [(number, twins[use]) for number, use in bucket]
            for place, bucket in self._buckets.items()
        }
        copy._aging = [deque(twins[use] for use in queue) for queue in self._aging]
        return copy

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
        elif bucket[-1] < entry:
            bucket.append(entry)
        else:
            insort(bucket, entry)

    def _unfile(self, use: Use) -> None:
        bucket = self._buckets[use.level, use.bin]
        del bucket[bisect_left(bucket, (use.number,))]
        if not bucket:
            del self._buckets[use.level, use.bin]
