"""Which of several copies of a block counts, after a restart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pagoda.core.identity import DIGEST_BYTES as KEY_BYTES
from pagoda.tiers.scanning import Found


def newest_copies(found: Found) -> tuple[NDArray[np.intp], list[int]]:
    """Positions in `found` of each key's newest copy, and the slots of the older ones.

    The positions are in the order of last use as far as it is known: oldest block first, and
    of blocks stored together the deepest first.
    """
    order = np.lexsort((-found.depths.astype(np.int64), found.created_ms))
    keys = np.frombuffer(found.keys, dtype=f"V{KEY_BYTES}")[order]
    heads = np.sort(keys.view("<u8")[:: KEY_BYTES // 8])
    if not (heads[1:] == heads[:-1]).any():  # as nearly always: no key is there twice
        return order, []
    newest: dict[bytes, int] = {}
    older: list[int] = []
    for position, key in zip(order.tolist(), keys.tolist(), strict=True):
        if key in newest:
            older.append(newest.pop(key))
        newest[key] = position
    return np.array(list(newest.values()), dtype=np.intp), found.slots[older].tolist()
