"""A tier's state and its eviction policy, kept in step by one owner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pagoda.core.decide import make_room
from pagoda.core.identity import DIGEST_BYTES, Key
from pagoda.core.pinned import PinnedSlots
from pagoda.core.policy import Ending, Policy, Request, name_of
from pagoda.core.state import SlotState, TierState

_ADOPTED = 4096  # slots told to the policy at a time


class Residency:
    """What one tier holds. Queries go to `state`; every transition goes through here."""

    def __init__(self, state: TierState, policy: Policy) -> None:
        self.state = state
        self._policy = policy
        self._open: set[Request] = set()
        self.pinned = PinnedSlots(state)
        self.evicted = 0  # blocks dropped to make room, since the start
        self.overruled = 0  # of those, blocks that were pinned

    def begin(self, request: Request) -> None:
        """A request comes; its look-ups follow."""
        assert request not in self._open, f"{self.state.name}: a request begins twice"
        self._open.add(request)
        self._policy.begin(request)

    def end(self, request: Request, ending: Ending) -> None:
        """A request that began is over. What is here of its chain counts as used now, tail
        first."""
        self._open.remove(request)
        self._policy.touch(self.state.prefix(ending.keys))
        self._policy.end(request, ending)

    @property
    def policy(self) -> str:
        """The name of the policy."""
        return name_of(self._policy)

    @property
    def leader(self) -> str:
        """See Policy.leader."""
        return self._policy.leader

    @property
    def open_requests(self) -> int:
        """Requests that began and are not over."""
        return len(self._open)

    def lease_prefix(self, keys: Sequence[Key]) -> list[int]:
        """Look up and lease the longest published prefix of `keys`; a request uses it."""
        slots = self.state.lease_prefix(keys)
        self._policy.touch(slots)
        return slots

    def reserve(self, count: int) -> list[int]:
        """`count` slots for filling, evicting if need be; fewer when all else is leased. Pinned
        blocks go when nothing else can."""
        victims = make_room(self.state, self._policy, count, pinned=self.pinned.mask)
        if victims:
            self.overruled += self.pinned.among(victims)
            self.retire(victims)
            self.evicted += len(victims)
        return self.state.reserve(count)

    def admits(
        self, keys: Sequence[Key], parents: Sequence[Key], *, spare: int = 0
    ) -> Sequence[int]:
        """Positions of the blocks that are worth a place, of some that are not here (see
        Policy.admits); pinned ones always are. `spare` slots are theirs beside the free ones."""
        worth = self._policy.admits(keys, parents, max(0, self.state.free_count() + spare))
        if self.pinned.mask is None:
            return worth
        pinned = (at for at, key in enumerate(keys) if self.pinned.pins(key))
        return sorted({*worth, *pinned})

    def publish(
        self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]
    ) -> list[int]:
        """Let keys lead to filled slots; returns those published (see TierState.publish).
        `parents` are the keys before them in their chains (see Policy.insert)."""
        done = self.state.publish(slots, keys)
        if len(done) < len(slots):
            new = set(done)
            kept = [i for i, slot in enumerate(slots) if slot in new]
            keys, parents = [keys[i] for i in kept], [parents[i] for i in kept]
        self._policy.insert(done, keys, parents)
        self.pinned.published(done, keys)
        return done

    def touch(self, slots: Sequence[int]) -> None:
        """A request used these slots (in prefix order)."""
        self._policy.touch(slots)

    def retire(self, slots: Sequence[int]) -> list[int]:
        """Unpublish slots; those without a lease are free at once and returned."""
        self._policy.remove(slots)
        self.pinned.gone(slots)
        return self.state.retire(slots)

    def quarantine(self, slots: Sequence[int]) -> None:
        """Take slots that held a bad block out of service."""
        self._policy.remove([s for s in slots if self.state.state_of(s) == SlotState.PUBLISHED])
        self.pinned.gone(slots)
        self.state.quarantine(slots)

    def adopt(
        self,
        slots: NDArray[np.int32],
        keys: bytes,
        parents: bytes,
        *,
        generations: NDArray[np.uint64],
        floor: int,
    ) -> None:
        """Publish what a scan found, oldest first (see TierState.adopt). `keys` and `parents`
        lie one behind the other."""
        assert self.pinned.mask is None, "pins come after what a scan found"
        self.state.adopt(slots, keys, generations=generations, floor=floor)
        for first in range(0, len(slots), _ADOPTED):  # a batch's last slot is its oldest
            batch = slice(first, first + _ADOPTED)
            self._policy.insert(
                slots[batch][::-1].tolist(),
                _cut(keys, batch),
                _cut(parents, batch),
            )

    def drop_unleased(self) -> list[int]:
        """Retire everything that nobody holds; returns the slots."""
        slots = [slot for slot in self.state.published_slots() if not self.state.leased(slot)]
        self.retire(slots)
        return slots

    def check_invariants(self) -> None:
        """The state adds up, and the policy orders exactly the published slots."""
        self.state.check_invariants()
        published = set(self.state.published_slots())
        assert self._policy.tracked() == published, f"{self.state.name}: policy out of step"
        self.pinned.check_invariants()


def _cut(keys: bytes, batch: slice) -> list[Key]:
    """Keys of a batch that lie one behind the other, the last first."""
    part = keys[batch.start * DIGEST_BYTES : batch.stop * DIGEST_BYTES]
    starts = range(len(part) - DIGEST_BYTES, -1, -DIGEST_BYTES)
    return [Key(part[start : start + DIGEST_BYTES]) for start in starts]
