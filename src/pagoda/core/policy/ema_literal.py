"""The usual advice, taken at its word: heat decays by 0.95 a request, an access adds 0.05, and
a block is pinned while its heat is above 0.9.

Coldest first, as `ema`, with requests for the clock. The pinned are dropped last, which is where
their heat puts them anyway: the pin as such does nothing to this order. With a half-life of 13.5
requests, hardly any count of old accesses weighs more than one recent one, and on production
traffic this is LRU. Heat is not remembered beyond a block's stay: it has faded by then.
"""

from __future__ import annotations

import math

from pagoda.core.policy.ema import Ema
from pagoda.core.policy.port import Request

DECAY = 0.95  # a request


class EmaLiteral(Ema):
    """Coldest first, by requests; see `core.policy.port.Policy` for the contract."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots, half_life=math.log(0.5) / math.log(DECAY), remembered=0)
        self._requests = 0

    def begin(self, request: Request) -> None:
        self._requests += 1
        super().begin(request)

    def _now(self) -> float:
        return self._requests
