"""Recent window: the newest tokens of each sequence stay up, everything before them goes first.

A block leaves its sequence's window when the sequence has grown past it, and comes back when a
request ends in it. Within both parts the least recently used goes first, tail first. This is
the rule of engines that keep a sliding window in fast memory; for prefixes it is a warning: the
head of a prefix goes before its tail, which is useless without it. Reference: G. Xiao et al.,
"Efficient streaming language models with attention sinks", ICLR 2024 (its window, without the
sinks).
"""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.port import Ending, Policy, Request
from pagoda.core.recency import make_recency

WINDOW_TOKENS = 4096


class RecentWindow(Policy):
    """What is outside of all windows first; see `core.policy.port.Policy` for the contract.

    How many blocks a window has follows from each request's tokens and blocks. New blocks are
    in the window of the sequence that runs.
    """

    def __init__(self, slots: int, *, window_tokens: int = WINDOW_TOKENS) -> None:
        assert window_tokens > 0, "a window has at least one token"
        self._window_tokens = window_tokens
        self._slot_of: dict[Key, int] = {}
        self._key_of: dict[int, Key] = {}
        self._within: set[int] = set()
        self._window = make_recency(slots)
        self._rest = make_recency(slots)

    def begin(self, request: Request) -> None:
        self._divide(request, request.keys)

    def end(self, request: Request, ending: Ending) -> None:
        self._divide(request, ending.keys)

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        for slot, key in zip(slots, keys, strict=True):
            self._slot_of[key] = slot
            self._key_of[slot] = key
        self._within.update(slots)
        self._window.touch(slots)

    def touch(self, slots: Sequence[int]) -> None:
        self._window.touch([slot for slot in slots if slot in self._within])
        self._rest.touch([slot for slot in slots if slot not in self._within])

    def remove(self, slots: Sequence[int]) -> None:
        for slot in slots:
            del self._slot_of[self._key_of.pop(slot)]
        self._window.remove([slot for slot in slots if slot in self._within])
        self._rest.remove([slot for slot in slots if slot not in self._within])
        self._within.difference_update(slots)

    def victims(self, count: int, leases: Leases) -> list[int]:
        chosen = self._rest.oldest(count, leases)
        return chosen + self._window.oldest(count - len(chosen), leases)

    def tracked(self) -> set[int]:
        return set(self._window.slots()) | set(self._rest.slots())

    def _divide(self, request: Request, chain: Sequence[Key]) -> None:
        """A sequence ends in its window: move what is on the wrong side of its begin."""
        blocks = -(-self._window_tokens * len(request.keys) // max(request.tokens, 1))
        first = max(0, len(chain) - max(blocks, 1))
        here = [self._slot_of.get(key) for key in chain]
        self._move([s for s in here[:first] if s is not None and s in self._within], up=False)
        self._move([s for s in here[first:] if s is not None and s not in self._within], up=True)

    def _move(self, slots: list[int], *, up: bool) -> None:
        (self._rest if up else self._window).remove(slots)
        (self._window if up else self._rest).touch(slots)
        (self._within.update if up else self._within.difference_update)(slots)
