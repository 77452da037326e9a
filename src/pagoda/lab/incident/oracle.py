"""Who knows every block's true bytes, and looks at what was served. Outside the store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagoda.core.identity import DIGEST_BYTES, Key
from pagoda.lab.incident.traffic import true_bytes

Served = tuple[Sequence[Key], Sequence[int], int]  # keys, slots, how many did not move


class Oracle:
    """Looks at blocks in a pool of memory.

    Blocks that crossed a tier for the request are compared byte for byte. Of those that the
    upper tier had, the first and the last 8 bytes are compared, for all requests of a batch in
    one operation: a block of another key or a torn one differs there.
    """

    def __init__(self, pool: memoryview, views: Sequence[memoryview], block_bytes: int) -> None:
        words = np.frombuffer(pool, dtype="<u8")[: len(views) * block_bytes // 8]
        self._words = words.reshape(len(views), block_bytes // 8)
        self._views = views
        self._block_bytes = block_bytes
        self.wrong = 0

    def check(self, served: Sequence[Served]) -> None:
        """Count the wrong blocks of requests that are about to be answered."""
        for keys, slots, stayed in served:
            for position in range(stayed, len(keys)):
                served_bytes = bytes(self._views[slots[position]])  # a view compares bytewise
                self.wrong += served_bytes != true_bytes(keys[position], self._block_bytes)
        stayed_keys = b"".join(b"".join(keys[:stayed]) for keys, _, stayed in served)
        if not stayed_keys:
            return
        rows = np.array([s for _, slots, stayed in served for s in slots[:stayed]], dtype=np.intp)
        names = np.frombuffer(stayed_keys, dtype="<u8").reshape(-1, DIGEST_BYTES // 8)
        bad = (self._words[rows, 0] != names[:, 0]) | (self._words[rows, -1] != names[:, -1])
        self.wrong += int(bad.sum())
