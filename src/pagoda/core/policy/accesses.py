"""From what a tier tells a policy to the accesses of blocks, each once a request.

A request's prompt accesses all its blocks when the request comes, whether the tier holds them
or not, and its end accesses those that it generated. The tier's touches say the same again, at
the look-up and at the end, and are not counted. Within a request the tail comes first, so that
what has no other difference is dropped before the head that it is useless without.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from pagoda.core.identity import Key
from pagoda.core.policy.ghosts import Ghosts
from pagoda.core.policy.port import Ending, Policy, Request


class AccessPolicy(Policy):
    """A policy that counts accesses. Subclasses write the five hooks below, and `victims`."""

    def __init__(self, slots: int) -> None:
        self._slot_of: dict[Key, int] = {}
        self._key_of: dict[int, Key] = {}
        self._announced: Ghosts[None] = Ghosts(2 * slots)  # missed by a prompt, may be inserted
        self._unclaimed: set[Key] = (
            set()
        )  # inserted unannounced: an end may claim to have made them
        self._now_s = 0.0

    @abstractmethod
    def _hit(self, slot: int, key: Key) -> None:
        """A request accesses a block that is here."""

    @abstractmethod
    def _miss(self, key: Key) -> None:
        """A request accesses a block that is not here; it may enter next."""

    @abstractmethod
    def _enter(self, slot: int, key: Key) -> None:
        """A block is here now. The access that brought it here has been a `_miss`."""

    @abstractmethod
    def _leave(self, slot: int, key: Key) -> None:
        """A block is no longer here."""

    def begin(self, request: Request) -> None:
        self._now_s = request.at_s
        for key in self._access(request.keys):
            self._announced.put(key, None)

    def end(self, request: Request, ending: Ending) -> None:
        self._now_s = ending.at_s
        for key in request.keys:
            self._announced.take(key)
        made = generated(request.keys, ending.keys)
        self._access([key for key in made if key not in self._unclaimed])
        self._unclaimed.difference_update(made)

    def insert(self, slots: Sequence[int], keys: Sequence[Key], parents: Sequence[Key]) -> None:
        for slot, key in zip(reversed(slots), reversed(keys), strict=True):
            if key in self._announced:
                self._announced.take(key)
            else:
                self._miss(key)
                self._unclaimed.add(key)
            self._slot_of[key] = slot
            self._key_of[slot] = key
            self._enter(slot, key)

    def touch(self, slots: Sequence[int]) -> None:
        return

    def remove(self, slots: Sequence[int]) -> None:
        for slot in slots:
            key = self._key_of.pop(slot)
            del self._slot_of[key]
            self._unclaimed.discard(key)
            self._leave(slot, key)

    def tracked(self) -> set[int]:
        return set(self._key_of)

    def _access(self, keys: Sequence[Key]) -> list[Key]:
        """Tell of an access of each, tail first; returns those that are not here."""
        slot_of = self._slot_of
        missed: list[Key] = []
        for key in reversed(keys):
            slot = slot_of.get(key)
            if slot is None:
                self._miss(key)
                missed.append(key)
            else:
                self._hit(slot, key)
        return missed


def generated(prompt: Sequence[Key], chain: Sequence[Key]) -> Sequence[Key]:
    """The blocks of a chain that a prompt does not have. Its last block may be partly filled,
    and is then none of the chain's."""
    shared = min(len(prompt), len(chain))
    while shared and prompt[shared - 1] != chain[shared - 1]:
        shared -= 1
    return chain[shared:]
