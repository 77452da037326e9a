"""Eviction policies written down as plainly as they are defined: whole histories, lists and
searches. What is under test is held equal to them, block for block."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pagoda.core.trace import TraceRequest

BLOCK_TOKENS = 4


def requests(seed: int, count: int = 150, *, fan: int = 3, depth: int = 5) -> list[TraceRequest]:
    """Requests of whole blocks: paths in a tree, some branches hotter than others, answered
    by up to two blocks more, so that a later prompt may go on where an answer ended."""
    rng = random.Random(seed)
    names: dict[tuple[int, ...], int] = {}
    made: list[TraceRequest] = []
    at_s = 0.0
    for _ in range(count):
        path = [min(rng.randrange(fan), rng.randrange(fan)) for _ in range(depth)]
        prompt = rng.randint(1, depth)
        chain = [names.setdefault(tuple(path[: n + 1]), len(names)) for n in range(depth)]
        at_s += rng.choice([0.0, 1.0, 40.0, 300.0])
        made.append(
            TraceRequest(
                at_s=at_s,
                input_tokens=prompt * BLOCK_TOKENS,
                output_tokens=2 * BLOCK_TOKENS,
                prompt=tuple(chain[:prompt]),
                generated=tuple(chain[prompt : prompt + rng.randint(0, 2)]),
            )
        )
    return made


class NaiveTier:
    """Blocks of a tier under a policy, which subclasses define by `rank`: the lowest goes
    first. A request accesses each of its blocks once, tail first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.here: list[int] = []
        self.turn = 0  # of accesses
        self.number = 0  # of requests
        self.at_s = 0.0
        self.uses = 0  # hits, and blocks that entered
        self.last: dict[int, int] = {}  # of them, each block's latest
        self.ever: dict[int, list[tuple[int, int, float]]] = {}  # accesses: turn, request, time
        self.stay: dict[int, list[tuple[int, int, float]]] = {}  # the same, of this stay

    def request(self, traced: TraceRequest) -> None:
        """Look up, insert what is missing as far as there is room, and end."""
        self.number, self.at_s = self.number + 1, traced.at_s
        held = self.held(traced.prompt)
        for block in reversed(traced.prompt):
            self.access(block)
        chain = traced.prompt + traced.generated
        fresh = [block for block in chain[len(held) :] if block not in self.here]
        for victim in self.choose(len(fresh) + len(self.here) - self.capacity, held):
            self.here.remove(victim)
            self.dropped(victim)
        fresh = fresh[: self.capacity - len(self.here)]
        for block in reversed(fresh):
            if block in traced.generated:
                self.access(block)
            self.here.append(block)
            self.use(block)
            self.entered(block)
        for block in reversed([b for b in traced.generated if b not in fresh]):
            self.access(block)

    def held(self, prompt: Sequence[int]) -> list[int]:
        count = 0
        while count < len(prompt) and prompt[count] in self.here:
            count += 1
        return list(prompt[:count])

    def access(self, block: int) -> None:
        self.turn += 1
        entry = (self.turn, self.number, self.at_s)
        self.ever.setdefault(block, []).append(entry)
        if block in self.here:
            self.stay[block].append(entry)
            self.use(block)
            self.hit(block)
        else:
            self.missed(block)

    def choose(self, count: int, held: list[int]) -> list[int]:
        able = [block for block in self.here if block not in held]
        return sorted(able, key=self.rank)[: max(count, 0)]

    def hit(self, block: int) -> None:
        """A block that is here is accessed."""

    def missed(self, block: int) -> None:
        """A block that is not here is accessed."""

    def entered(self, block: int) -> None:
        """A block is here now."""
        self.stay[block] = self.ever[block][-1:]

    def dropped(self, block: int) -> None:
        """A block is gone."""

    def rank(self, block: int) -> tuple[float, ...]:
        raise NotImplementedError

    def use(self, block: int) -> None:
        self.uses += 1
        self.last[block] = self.uses


class NaiveLru2(NaiveTier):
    def rank(self, block: int) -> tuple[float, ...]:
        turns = [turn for turn, _, _ in self.ever[block]]
        return (turns[-2] if len(turns) > 1 else 0, self.last[block])


class NaiveLfu(NaiveTier):
    def rank(self, block: int) -> tuple[float, ...]:
        return (len(self.stay[block]), self.last[block])


class NaiveEma(NaiveTier):
    def rank(self, block: int) -> tuple[float, ...]:
        heat = sum(2 ** ((at_s - self.at_s) / 300) for _, _, at_s in self.ever[block])
        return (round(heat, 12), self.last[block])


class NaiveEmaLiteral(NaiveTier):
    def rank(self, block: int) -> tuple[float, ...]:
        heat = sum(0.05 * 0.95 ** (self.number - number) for _, number, _ in self.stay[block])
        return (heat > 0.9, round(heat, 14), self.last[block])


class NaiveGdsf(NaiveTier):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.age = 0
        self.priority: dict[int, int] = {}

    def hit(self, block: int) -> None:
        self.priority[block] = self.age + len(self.stay[block])

    def entered(self, block: int) -> None:
        super().entered(block)
        self.priority[block] = self.age + 1

    def dropped(self, block: int) -> None:
        below = [self.priority[other] for other in self.here]
        self.age = max(self.age, min([self.priority[block], *below]))

    def rank(self, block: int) -> tuple[float, ...]:
        return (self.priority[block], self.last[block])


class NaiveArc(NaiveTier):
    """The four lists of the paper, oldest first."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.t1: list[int] = []
        self.t2: list[int] = []
        self.b1: list[int] = []
        self.b2: list[int] = []
        self.returning: set[int] = set()
        self.target = 0.0

    def hit(self, block: int) -> None:
        (self.t1 if block in self.t1 else self.t2).remove(block)
        self.t2.append(block)

    def missed(self, block: int) -> None:
        if block in self.b1:
            self.target = min(self.capacity, self.target + max(len(self.b2) / len(self.b1), 1))
            self.b1.remove(block)
            self.returning.add(block)
        elif block in self.b2:
            self.target = max(0, self.target - max(len(self.b1) / len(self.b2), 1))
            self.b2.remove(block)
            self.returning.add(block)

    def entered(self, block: int) -> None:
        super().entered(block)
        (self.t2 if block in self.returning else self.t1).append(block)
        self.returning.discard(block)
        self.trim()

    def dropped(self, block: int) -> None:
        lists = (self.t1, self.b1) if block in self.t1 else (self.t2, self.b2)
        lists[0].remove(block)
        lists[1].append(block)
        self.trim()

    def choose(self, count: int, held: list[int]) -> list[int]:
        once = [block for block in self.t1 if block not in held]
        again = [block for block in self.t2 if block not in held]
        size, chosen = len(self.t1), []
        while len(chosen) < count and (once or again):
            if once and (size > self.target or not again):
                chosen.append(once.pop(0))
                size -= 1
            else:
                chosen.append(again.pop(0))
        return chosen

    def trim(self) -> None:
        while self.b1 and len(self.t1) + len(self.b1) > self.capacity:
            self.b1.pop(0)
        lists = (self.t1, self.t2, self.b1, self.b2)
        while self.b2 and sum(map(len, lists)) > 2 * self.capacity:
            self.b2.pop(0)


class NaiveS3Fifo(NaiveTier):
    """Two queues, oldest first, changed as victims are looked for."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.most = max(1, capacity // 10)
        self.small: list[int] = []
        self.main: list[int] = []
        self.ghosts: list[int] = []
        self.returning: set[int] = set()
        self.hits: dict[int, int] = {}

    def hit(self, block: int) -> None:
        self.hits[block] = min(3, self.hits[block] + 1)

    def missed(self, block: int) -> None:
        if block in self.ghosts:
            self.ghosts.remove(block)
            self.returning.add(block)

    def entered(self, block: int) -> None:
        super().entered(block)
        (self.main if block in self.returning else self.small).append(block)
        self.returning.discard(block)
        self.hits[block] = 0

    def choose(self, count: int, held: list[int]) -> list[int]:
        chosen: list[int] = []
        while len(chosen) < count:
            able = [[b for b in queue if b not in held] for queue in (self.small, self.main)]
            small, main = able
            if small and (len(self.small) >= self.most or not self.main or not main):
                self.small.remove(small[0])
                if self.hits[small[0]]:
                    self.hits[small[0]] = 0
                    self.main.append(small[0])
                else:
                    chosen.append(small[0])
                    self.ghosts = [*self.ghosts, small[0]][-(self.capacity - self.most) :]
            elif main:
                self.main.remove(main[0])
                if self.hits[main[0]]:
                    self.hits[main[0]] -= 1
                    self.main.append(main[0])
                else:
                    chosen.append(main[0])
            else:
                break
        return chosen


class NaiveSieve(NaiveTier):
    """One queue, oldest first, and the hand's place in it."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.queue: list[int] = []
        self.hand = 0
        self.marked: set[int] = set()

    def hit(self, block: int) -> None:
        self.marked.add(block)

    def entered(self, block: int) -> None:
        super().entered(block)
        self.queue.append(block)

    def choose(self, count: int, held: list[int]) -> list[int]:
        chosen: list[int] = []
        while len(chosen) < count and any(block not in held for block in self.queue):
            block = self.queue[self.hand]
            if block not in held and block not in self.marked:
                chosen.append(self.queue.pop(self.hand))
            else:
                if block not in held:
                    self.marked.discard(block)
                self.hand += 1
            if self.hand >= len(self.queue):
                self.hand = 0
        return chosen
