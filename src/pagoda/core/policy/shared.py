"""Blocks that several sessions use, such as those of a system prompt.

They have no turn of their own to wait for: what counts is how often they are used, as an
exponential average with a half-life in time. It is remembered for blocks that are gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pagoda.core.identity import Key
from pagoda.core.policy.ghosts import Ghosts

_REMEMBERED = 65_536  # blocks
_HALF_LIFE_S = 300.0
_SECOND_USE = 0.5  # heat of a block when it becomes shared: its first use has faded
_CREDIT = 0.8  # of the average: it is late when uses end


class SharedBlocks:
    """How often the shared ones of all blocks are used.

    Their heat is the binary logarithm of decayed uses, as of second zero: the order of two
    blocks changes only when one is used.
    """

    def __init__(self) -> None:
        self._heat: Ghosts[float] = Ghosts(_REMEMBERED)

    def heat(self, key: Key) -> float | None:
        """The heat of a shared block; None for others."""
        return self._heat.get(key)

    def heats(self, keys: Sequence[Key]) -> list[float | None]:
        """The same of several."""
        return self._heat.get_all(keys)

    def used(self, keys: Sequence[Key], at_s: float, *, own: int) -> None:
        """A request uses blocks that earlier ones had. The first `own` are its
        session's; by the others it shares them with another session."""
        now = at_s / _HALF_LIFE_S
        for position, (key, heat) in enumerate(zip(keys, self.heats(keys), strict=True)):
            if heat is not None:
                more, less = max(heat, now), min(heat, now)
                self._heat.put(key, more + math.log2(1.0 + 2.0 ** (less - more)))
            elif position >= own:
                self._heat.put(key, now + _SECOND_USE)


def heat_of(density: float, at_s: float) -> float:
    """The heat of a block that promises so many hits a second now."""
    if density <= 0 or density == math.inf:
        return math.copysign(math.inf, density - 1)
    return math.log2(density * _HALF_LIFE_S / (_CREDIT * math.log(2))) + at_s / _HALF_LIFE_S


def density_of(heat: float, at_s: float) -> float:
    """How many hits a second a block of this heat promises now."""
    density: float = _CREDIT * math.log(2) / _HALF_LIFE_S * 2.0 ** (heat - at_s / _HALF_LIFE_S)
    return density
