"""The policy port: which blocks to drop when a tier is full.

A policy hears of requests (`begin`, `end`) and of the slots of its tier (`insert`, `touch`,
`remove`), and is asked for victims. Only the last five methods must be written; a policy that
subclasses `Policy` inherits a deaf ear for requests and an open door for new blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases


class Hint(Enum):
    """What a request says of its session. Never trusted blindly: how often it is right is
    learned."""

    NONE = "none"
    ALIVE = "alive"  # another turn will come
    CLOSED = "closed"  # none will
    TOOL = "tool"  # the next turn comes once a tool has answered


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """A request as policies see it: the chain of its prompt's blocks, first block first, when
    it came (seconds, monotonic), how many tokens its prompt has, and what it says of its
    session."""

    keys: Sequence[Key]
    at_s: float
    tokens: int
    hint: Hint = Hint.NONE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ending:
    """How a request ended: its chain with the blocks of what it generated, when (seconds,
    monotonic), how many tokens it generated, and what is known of its session by then."""

    keys: Sequence[Key]
    at_s: float
    output_tokens: int
    hint: Hint = Hint.NONE


class Policy(Protocol):
    """An order of eviction over the published slots of one tier of a fixed number of slots.

    Slots of one prefix come in prefix order. The owner of the state tells the policy of every
    change; the policy holds no leases and reads no clock: time is what requests bring. One key
    has at most one slot. A policy may remember keys whose blocks are gone.
    """

    @property
    def leader(self) -> str:
        """Which of its orders decides now; empty for a policy that has one."""
        return ""

    def begin(self, request: Request) -> None:
        """A request comes; its look-up follows. Blocks of it that the tier holds are touched
        after that, and others may be inserted."""
        return

    def end(self, request: Request, ending: Ending) -> None:
        """A request that began is over; its blocks are in the tier, or are not."""
        return

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], free: int) -> Sequence[int]:
        """Positions of those of these new blocks that are worth what they would displace, in
        ascending order. None of them is in the tier, which has `free` slots to fill; parents
        come before their children, and a block whose parent is refused is refused as well.
        Changes nothing."""
        return range(len(keys))

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        """Newly published slots, each with its block's key and the key before it in its chain
        (`identity.ROOT` if there is none). Blocks of one chain come in prefix order."""
        ...

    def touch(self, slots: Sequence[int]) -> None:
        """Slots that a request used."""
        ...

    def remove(self, slots: Sequence[int]) -> None:
        """Slots that are no longer published."""
        ...

    def victims(self, count: int, leases: Leases) -> list[int]:
        """Up to `count` tracked slots, the best to drop first; changes nothing.

        `leases` counts the leases of every slot of the tier: only a slot that has none may
        be named, and each at most once. Fewer than `count` only if there are no more.
        """
        ...

    def tracked(self) -> set[int]:
        """The slots that the policy orders (for invariant checks)."""
        ...
