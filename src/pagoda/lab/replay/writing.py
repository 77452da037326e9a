"""What a replayed host tier writes to drives, and when.

- `Through` is the live store's way: once a request is over, those of its whole blocks that the
  drives lack are offered to an admission, whether memory kept them or not. Nothing that the
  drives hold is written again.
- `Spill` is what others do: whatever memory evicts is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagoda.core.admission import Admission, Room, Verdict
from pagoda.core.budget import WriteBudget
from pagoda.core.decide import make_room
from pagoda.core.identity import Key
from pagoda.core.policy import Ending, Policy
from pagoda.core.residency import Residency

Pairs = Sequence[tuple[Key, Key]]  # blocks, each with the key before it in its chain


class Writing(Protocol):
    """Fills `drive`. What it wrote, and what it was offered and did not write, it counts in
    blocks of `block_bytes`."""

    drive: Residency
    block_bytes: int
    written: int
    declined: int

    def makes_room(self, host: Residency, policy: Policy, count: int) -> None:
        """Memory, whose policy this is, is about to take `count` blocks."""
        del host, policy, count

    def took(self, pairs: Pairs) -> None:
        """Memory took these blocks."""
        del pairs

    def ended(self, ending: Ending, pairs: Pairs) -> None:
        """A request is over; `pairs` are its whole blocks, in prefix order."""
        del ending, pairs


class Spill(Writing):
    """Whatever memory evicts. `rewrite`: also what the drives still hold from before."""

    def __init__(self, drive: Residency, *, block_bytes: int, rewrite: bool) -> None:
        self.drive, self.block_bytes = drive, block_bytes
        self.written = self.declined = 0
        self._rewrite = rewrite
        self._parents: dict[Key, Key] = {}  # of what memory holds

    def makes_room(self, host: Residency, policy: Policy, count: int) -> None:
        for slot in make_room(host.state, policy, count):
            key = host.state.key_of(slot)
            assert key is not None, "a victim is published"
            self._put(key, self._parents.pop(key))

    def took(self, pairs: Pairs) -> None:
        self._parents.update(pairs)

    def _put(self, key: Key, parent: Key) -> None:
        held = self.drive.state.slot_of(key)
        if held is not None:
            self.drive.touch([held])
            self.written += self._rewrite
        else:
            self.written += _write(self.drive, [(key, parent)])


class Through(Writing):
    """What `admission` lets through, as long as `budget` lasts (None: for ever)."""

    def __init__(
        self,
        drive: Residency,
        admission: Admission,
        *,
        block_bytes: int,
        budget: WriteBudget | None = None,
    ) -> None:
        self.drive, self.block_bytes = drive, block_bytes
        self.written = self.declined = 0
        self._admission = admission
        self._budget = budget

    def ended(self, ending: Ending, pairs: Pairs) -> None:
        self._admission.end(ending)
        absent = [pair for pair in pairs if self.drive.state.slot_of(pair[0]) is None]
        keys, parents = [key for key, _ in absent], [parent for _, parent in absent]
        wanted = [absent[i] for i in self.drive.admits(keys, parents)]
        chosen = self._judged(wanted, ending.at_s)
        afforded = self._afford(chosen, ending.at_s)
        done = _write(self.drive, afforded)
        self.written += done
        self.declined += len(absent) - done

    def _judged(self, pairs: Pairs, now_s: float) -> Pairs:
        """Those that the admission lets through."""
        room = Room(
            free=self.drive.state.free_count(),
            block_bytes=self.block_bytes,
            now_s=now_s,
            pace=self._budget.pace(now_s) if self._budget else None,
        )
        keys, parents = [key for key, _ in pairs], [parent for _, parent in pairs]
        verdicts = self._admission.judge(keys, parents, room)
        return [
            pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict is Verdict.WRITE
        ]

    def _afford(self, pairs: Pairs, now_s: float) -> Pairs:
        """As many of them as the budget has bytes for, which are spent."""
        budget = self._budget
        if budget is None:
            return pairs
        if budget.wants(now_s):
            budget.grant(now_s, int(now_s * 1000))
            budget.confirm()
        count = min(len(pairs), budget.usable_bytes // self.block_bytes)
        budget.spend(count * self.block_bytes)
        return pairs[:count]


def _write(drive: Residency, pairs: Pairs) -> int:
    """Put blocks on drives as far as room can be made; returns how many."""
    slots = drive.reserve(len(pairs))
    new = pairs[: len(slots)]
    drive.publish(slots, [key for key, _ in new], [parent for _, parent in new])
    drive.state.release(slots)
    return len(slots)
