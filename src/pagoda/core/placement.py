"""Which member of a rank takes the next run of writes. Pure; the caller asks again each run.

A rank is a set of levels of equal speed, such as all drives of a node. Runs are striped
over them like RAID 0, but each run goes where it is best off now: a member that is stuck,
full, worn or slow gets less and holds up nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A member as placement sees it.

    `ready` says that it takes writes at all now and has no run of its own under way;
    `budget_bytes` is what its write budget has left, `load_s` how many seconds of work (queued
    and under way, at its own speed) a new run would wait for, `free_blocks` how many blocks
    fit without evicting one.
    """

    ready: bool
    budget_bytes: int
    load_s: float
    free_blocks: int

    def takes(self, block_bytes: int) -> bool:
        """Whether it can take at least one block."""
        return self.ready and self.budget_bytes >= block_bytes


def place(candidates: Sequence[Candidate], *, block_bytes: int, after: int) -> int | None:
    """The position of the member that takes the next run; None when none can.

    Best first: one that need not evict, then the least loaded. An empty slot costs nothing and
    an eviction costs a block; while the member with room writes, the others take the next
    runs. Equals take turns, starting behind `after` (the last that was chosen), so that
    consecutive runs of a long prefix lie on different members and are read from all at once.
    """
    count = len(candidates)
    able = [i for i in range(count) if candidates[i].takes(block_bytes)]
    return min(
        able,
        key=lambda i: (
            candidates[i].free_blocks == 0,
            candidates[i].load_s,
            (i - after - 1) % count,
        ),
        default=None,
    )
