"""An exponential average of a block's accesses, with its half-life in time.

An access adds 1 to a block's heat, which halves in every half-life; the coldest block
is dropped first. The heat of blocks that are gone is remembered for so many of them: without
that, a block whose uses lie further apart than its stays would always look new. Reference:
D. Lee et al., "LRFU: A spectrum of policies that subsumes the least recently used and least
frequently used policies", IEEE Transactions on Computers 50(12), 2001, with seconds for steps.
"""

from __future__ import annotations

import math

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.accesses import AccessPolicy
from pagoda.core.policy.ghosts import Ghosts
from pagoda.core.policy.ranked import Ranked

HALF_LIFE_S = 300.0
_REMEMBERED = 32_768  # keys of blocks that are gone, beside one for each slot of the tier


class Ema(AccessPolicy):
    """Coldest first over slots; see `core.policy.port.Policy` for the contract.

    Heat is kept as the binary logarithm of what it would have been at second zero: the order
    of two blocks then changes only when one is accessed.
    """

    def __init__(
        self, slots: int, *, half_life: float = HALF_LIFE_S, remembered: int | None = None
    ) -> None:
        super().__init__(slots)
        assert half_life > 0, "heat halves in a time above zero"
        self._half_life = half_life
        self._gone: Ghosts[float] = Ghosts(
            _REMEMBERED + slots if remembered is None else remembered
        )
        self._heat: dict[int, float] = {}
        self._order: Ranked[float] = Ranked()

    def victims(self, count: int, leases: Leases) -> list[int]:
        return self._order.lowest(count, leases)

    def _hit(self, slot: int, key: Key) -> None:
        self._rank(slot, self._heated(self._heat[slot]))

    def _miss(self, key: Key) -> None:
        self._gone.put(key, self._heated(self._gone.get(key)))

    def _enter(self, slot: int, key: Key) -> None:
        heat = self._gone.take(key)
        self._rank(slot, self._heated(None) if heat is None else heat)

    def _leave(self, slot: int, key: Key) -> None:
        self._order.remove(slot)
        self._gone.put(key, self._heat.pop(slot))

    def _rank(self, slot: int, heat: float) -> None:
        self._heat[slot] = heat
        self._order.set(slot, heat)

    def _heated(self, heat: float | None) -> float:
        """The heat after an access now."""
        now = self._now() / self._half_life
        if heat is None:
            return now
        more, less = max(heat, now), min(heat, now)  # time may run back: no power is above 1
        return more + math.log2(1.0 + 2.0 ** (less - more))

    def _now(self) -> float:
        """Time in the unit of the half-life: seconds."""
        return self._now_s
