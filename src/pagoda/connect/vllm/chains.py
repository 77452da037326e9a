"""A request's chunks in the order of its tokens.

vLLM says of each chunk of a request behind which token it ends. Each group of layers has chunks of
its own, so a request has a chain for each group.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from pagoda.core.identity import Key

_GROUP_BYTES = 4  # the end of vLLM's names
_NONE: Sequence[Key] = ()

Held = Callable[[Key], bool]


def group_of(name: Key) -> bytes:
    """The group that a chunk is of."""
    return name[-_GROUP_BYTES:]


class Chains:
    """One request's chains. `ends` is vLLM's table of where each chunk ends, in tokens; it grows
    while the request runs, and `learn` takes in what is new."""

    def __init__(self, ends: Mapping[Key, int]) -> None:
        self.ends = ends
        self._learned = 0
        self._chains: dict[bytes, list[Key]] = {}

    def learn(self) -> None:
        """Take in chunks that vLLM has named since the last call."""
        ends = self.ends
        for name in islice(ends, self._learned, None):
            chain = self._chains.setdefault(group_of(name), [])
            if chain and ends[name] < ends[chain[-1]]:
                insort(chain, name, key=ends.__getitem__)
            else:
                chain.append(name)
        self._learned = len(ends)

    def of(self, group: bytes) -> Sequence[Key]:
        """A group's chunks, first one first."""
        return self._chains.get(group, _NONE)

    def reaching(self, names: Sequence[Key], tokens: int) -> int:
        """How many of a chain's chunks end within the first so many tokens."""
        return bisect_right(names, tokens, key=self.ends.__getitem__)

    def before(self, name: Key, held: Held) -> Key | None:
        """The last chunk before this one, of its group, that is held; None if there is none."""
        chain, end = self.of(group_of(name)), self.ends[name]
        at = bisect_left(chain, end, key=self.ends.__getitem__)
        return next((chain[i] for i in range(at - 1, -1, -1) if held(chain[i])), None)


def without_gaps(chain: Sequence[Key], held: Held) -> list[Key]:
    """A chain's chunks but for those that stand before held ones and are not held: groups with a
    sliding window never store them. What stands behind the last one held is still to come."""
    last = next((at for at in range(len(chain) - 1, -1, -1) if held(chain[at])), -1)
    return [name for at, name in enumerate(chain) if at > last or held(name)]
