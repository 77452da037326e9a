"""Uses of blocks by requests, in buckets of equal level and age."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from pagoda.core.identity import Key
from pagoda.core.policy.reuse import BINS, EDGES_S, ReuseModel


class Use:
    """What the blocks have in common that one request was the last to use."""

    __slots__ = ("asked", "at_s", "awaits", "bin", "leaves", "level", "open", "slots")

    def __init__(self, level: int, at_s: float, *, asked: bool) -> None:
        self.level = level
        self.at_s = at_s
        self.asked = asked  # False: no request asked for these blocks
        self.open = asked  # the request is not over: more blocks may come
        self.awaits: Key | None = None  # the first block that it lacked
        self.bin = 0
        self.slots = 0  # how many are here
        self.leaves: dict[int, None] = {}  # slots without a child here, the deepest last

    def copy(self) -> Use:
        """The same use, of the same slots in another order."""
        twin = Use(self.level, self.at_s, asked=self.asked)
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
        self._buckets: dict[tuple[int, int], dict[Use, None]] = {}  # those with leaves
        # By bin, oldest first; from the last bin nothing moves on.
        self._aging: list[deque[Use]] = [deque() for _ in range(BINS - 1)]

    def new(self, level: int, *, asked: bool) -> Use:
        """A use that begins now."""
        use = Use(level, self.now_s, asked=asked)
        self._aging[0].append(use)
        return use

    def score(self, use: Use) -> float:
        return self._model.scores[use.level][use.bin]

    def ascending(self) -> Iterator[tuple[float, dict[Use, None]]]:
        """Uses with leaves in buckets of one score, lowest first; of equal ones the oldest."""
        scores = self._model.scores
        for level, age in sorted(self._buckets, key=lambda at: (scores[at[0]][at[1]], -at[1])):
            yield scores[level][age], self._buckets[level, age]

    def add_leaf(self, use: Use, slot: int) -> None:
        if not use.leaves:
            self._buckets.setdefault((use.level, use.bin), {})[use] = None
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
        copy.now_s = self.now_s
        copy._buckets = {
            place: {twins[use]: None for use in bucket} for place, bucket in self._buckets.items()
        }
        copy._aging = [deque(twins[use] for use in queue) for queue in self._aging]
        return copy

    def _move(self, use: Use, level: int, age: int) -> None:
        if use.leaves:
            self._unfile(use)
            self._buckets.setdefault((level, age), {})[use] = None
        use.level, use.bin = level, age

    def _unfile(self, use: Use) -> None:
        bucket = self._buckets[use.level, use.bin]
        del bucket[use]
        if not bucket:
            del self._buckets[use.level, use.bin]
