"""Who asks for what: conversations that share openings, grow, and fork.

A request names a conversation; its prefix is the opening that the conversation's group shares,
and the turns of its own. Openings are asked for all the time and stay in the upper tier; a
conversation comes back after about as many requests as there are conversations, by which time
its turns have long left it: each request has to fetch them from below. Every fourth visit adds a
turn, which is computed; after the last one the conversation is forked at its first turn, and
the turns behind it are never asked for again.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pagoda.core.identity import DIGEST_BYTES, Key

FEWEST_BLOCKS, MOST_BLOCKS = 8, 64
_MOST_TURNS = 2
_VISITS_A_TURN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the load. Blocks of `block_bytes`; the working set is more than three times
    `upper_blocks`, and a little less than `host_blocks`."""

    groups: int = 256
    conversations: int = 20_000
    block_bytes: int = 4096
    upper_blocks: int = 14_336
    host_blocks: int = 60_000
    drive_blocks: int = 160_000
    seed: int = 1


class Conversations:
    """What each conversation consists of now. The seed decides everything."""

    def __init__(self, shape: Shape) -> None:
        self._rng = random.Random(shape.seed)  # noqa: S311 - a load, no secret
        self._made = 0
        self._tag = shape.seed.to_bytes(8, "little")
        shortest, longest = FEWEST_BLOCKS - 1, MOST_BLOCKS - _MOST_TURNS
        openings = [self._fresh(self._rng.randint(shortest, longest)) for _ in range(shape.groups)]
        self._openings = [openings[n % shape.groups] for n in range(shape.conversations)]
        self._turns = [self._fresh(1) for _ in range(shape.conversations)]
        self._visits = [0] * shape.conversations

    def __len__(self) -> int:
        return len(self._turns)

    def opened(self) -> Iterator[list[Key]]:
        """Every conversation's prefix as it is before the load."""
        for opening, turns in zip(self._openings, self._turns, strict=True):
            yield opening + turns

    def visit(self, number: int) -> list[Key]:
        """The prefix of the next request of a conversation: `FEWEST_BLOCKS` to `MOST_BLOCKS`."""
        self._visits[number] += 1
        turns = self._turns[number]
        if self._visits[number] % _VISITS_A_TURN == 0:
            turns = turns[:1] if len(turns) == _MOST_TURNS else turns
            turns = turns + self._fresh(1)
            self._turns[number] = turns
        return self._openings[number] + turns

    def unrelated(self, blocks: int) -> list[Key]:
        """A chain that no request will ask for: what a nightly job leaves behind."""
        return self._fresh(blocks)

    def _fresh(self, count: int) -> list[Key]:
        first, self._made = self._made, self._made + count
        return [
            Key(hashlib.sha256(self._tag + number.to_bytes(8, "little")).digest())
            for number in range(first, self._made)
        ]


def order_of_visits(conversations: int, *, seed: int) -> Iterator[int]:
    """Conversations in rounds, each shuffled anew: none comes back at once, and none for ever
    stays away."""
    rng = random.Random(seed)  # noqa: S311 - a load, no secret
    deck = list(range(conversations))
    while True:
        rng.shuffle(deck)
        yield from deck


def true_bytes(key: Key, block_bytes: int) -> bytes:
    """What the block of `key` holds, computed or restored: the oracle's answer."""
    return key * (block_bytes // DIGEST_BYTES)


def wrong_blocks(keys: Sequence[Key], blocks: Sequence[memoryview], block_bytes: int) -> int:
    """How many blocks that were served are not the true ones."""
    pairs = zip(keys, blocks, strict=True)
    return sum(bytes(block) != true_bytes(key, block_bytes) for key, block in pairs)
