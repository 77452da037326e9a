"""A tier's state and its eviction policy, kept in step by one owner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pagoda.core.decide import make_room
from pagoda.core.identity import Key
from pagoda.core.policy import Policy
from pagoda.core.state import SlotState, TierState


class Residency:
    """What one tier holds. Queries go to `state`; every transition goes through here."""

    def __init__(self, state: TierState, policy: Policy) -> None:
        self.state = state
        self._policy = policy
        self.evicted = 0  # blocks dropped to make room, since the start

    def reserve(self, count: int) -> list[int]:
        """`count` slots for filling, evicting if need be; fewer when all else is leased."""
        victims = make_room(self.state, self._policy, count)
        if victims:
            self.retire(victims)
            self.evicted += len(victims)
        return self.state.reserve(count)

    def publish(self, slots: Sequence[int], keys: Sequence[Key]) -> list[int]:
        """Let keys lead to filled slots; returns those published (see TierState.publish)."""
        done = self.state.publish(slots, keys)
        self._policy.insert(done)
        return done

    def touch(self, slots: Sequence[int]) -> None:
        """A request used these slots (in prefix order)."""
        self._policy.touch(slots)

    def retire(self, slots: Sequence[int]) -> list[int]:
        """Unpublish slots; those without a lease are free at once and returned."""
        self._policy.remove(slots)
        return self.state.retire(slots)

    def quarantine(self, slots: Iterable[int]) -> None:
        """Take slots that held a bad block out of service."""
        for slot in slots:
            if self.state.state_of(slot) == SlotState.PUBLISHED:
                self._policy.remove([slot])
            self.state.quarantine([slot])

    def adopt(self, entries: Sequence[tuple[int, Key]], *, generations: Sequence[int]) -> None:
        """Publish what a scan found, oldest first."""
        self.state.adopt(entries, generations=generations)
        for slot, _ in entries:
            self._policy.insert([slot])

    def drop_unleased(self) -> list[int]:
        """Retire everything that nobody holds; returns the slots."""
        slots = [slot for _, slot in self.state.published() if not self.state.leased(slot)]
        self.retire(slots)
        return slots

    def check_invariants(self) -> None:
        """The state adds up, and the policy orders exactly the published slots."""
        self.state.check_invariants()
        published = {slot for _, slot in self.state.published()}
        assert self._policy.tracked() == published, f"{self.state.name}: policy out of step"
