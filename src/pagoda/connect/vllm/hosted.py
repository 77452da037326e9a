"""The chunks of vLLM's host memory as an eviction policy of Pagoda's sees them.

A chunk's number is the policy's slot, its name the key. vLLM tells less than a policy is told by
Pagoda's own store: of a request it tells first when a chunk of it is to come, or at its end when
none was. By then its whole prompt is named, so that the policy hears of the request as it should:
once for each group of layers, with the chain of its prompt, and before any chunk of it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pagoda.connect.vllm.chains import Chains, group_of, without_gaps
from pagoda.core.decide import choose
from pagoda.core.identity import ROOT, Key
from pagoda.core.keyindex import Leases
from pagoda.core.pinned import PinnedSlots
from pagoda.core.policy import Ending, Hint, Policy, Request


@dataclass(slots=True, eq=False)
class Visit:
    """A request on its way: its chains, the groups that the policy has heard of, and the chunks
    that it lacked. `tenure` is that of the chunks it came to."""

    chains: Chains
    hint: Hint
    tenure: object
    begun: dict[bytes, Request] = field(default_factory=dict)
    lacked: set[Key] = field(default_factory=set)


class HostedChunks:
    """What host memory of `slots` chunks holds, in the order of the policy that `make` makes.
    `clock` is in seconds, and monotonic. One thread."""

    name = "host"

    def __init__(
        self, slots: int, make: Callable[[int], Policy], *, clock: Callable[[], float]
    ) -> None:
        self.slots = slots
        self.clock = clock
        self._make = make
        self._leases: Leases = np.zeros(slots, dtype=np.int32)
        self.pinned = PinnedSlots(self)
        self.clear()

    # What is there.

    def slot_of(self, name: Key) -> int | None:
        """The slot of a chunk."""
        return self._slot_of.get(name)

    def published(self) -> Iterator[tuple[Key, int]]:
        """Every chunk and its slot."""
        return iter(self._slot_of.items())

    # Requests.

    def visit(self, chains: Chains, hint: Hint = Hint.NONE) -> Visit:
        """A request that is heard of for the first time."""
        return Visit(chains, hint, self.tenure)

    def lacks(self, visit: Visit, names: Sequence[Key]) -> None:
        """Chunks of a request that are not here, and may be added next."""
        self._settle()
        visit.chains.learn()
        coming = dict.fromkeys(name for name in names if name in visit.chains.ends)
        held = self._held(coming)
        at_s = self.clock()
        for group in dict.fromkeys(map(group_of, coming)):
            if group not in visit.begun:
                self._begin(visit, group, without_gaps(visit.chains.of(group), held), at_s)
        visit.lacked.update(coming)
        self._awaited_by.update(dict.fromkeys(coming, visit))

    def over(self, visit: Visit, seen: Sequence[Sequence[Key]]) -> list[Key]:
        """A request is over; `seen` are the chunks that it loaded or offered, by group. Returns
        those of its prompt."""
        self._settle()
        visit.chains.learn()
        at_s, ends = self.clock(), visit.chains.ends
        reach = dict.fromkeys(visit.begun, 0)
        for name in (name for names in seen for name in names if name in ends):
            reach[group_of(name)] = max(reach.get(group_of(name), 0), ends[name])
        endings = [self._ending(visit, group, tokens, at_s) for group, tokens in reach.items()]
        used = sorted((key for _, ending in endings for key in ending.keys), key=ends.__getitem__)
        self.touch([*used, *(name for names in seen for name in names if name not in ends)])
        for request, ending in endings:
            self._policy.end(request, ending)
        for name in visit.lacked:
            if self._awaited_by.get(name) is visit:
                del self._awaited_by[name]
        return [key for request, ending in endings for key in ending.keys[: len(request.keys)]]

    def touch(self, names: Sequence[Key]) -> None:
        """Chunks were used, in prefix order; those that are not here are passed over."""
        self._settle()
        self._policy.touch(
            [slot for name in names if (slot := self._slot_of.get(name)) is not None]
        )

    # Chunks.

    def add(self, name: Key, slot: int) -> None:
        """A chunk has a slot; it is leased until it is free to go."""
        assert name not in self._slot_of, "a chunk comes once"
        self._slot_of[name] = slot
        self._name_at[slot] = name
        self._leases[slot] = 1
        self._news.append(name)  # told in batches: a policy wants the blocks of a chain together

    def drop(self, name: Key) -> None:
        """A chunk is gone."""
        self._settle()
        self._forget([self._slot_of[name]])

    def lease(self, name: Key, *, free: bool) -> None:
        """Whether a chunk is free to go."""
        self._leases[self._slot_of[name]] = 0 if free else 1

    def evict(self, count: int, spared: Collection[Key]) -> list[Key] | None:
        """Drop exactly `count` chunks that are free to go, none of `spared`; None, and nothing
        changes, when there are fewer. Pinned ones go when nothing else can."""
        self._settle()
        kept = [slot for name in spared if (slot := self._slot_of.get(name)) is not None]
        self._leases[kept] += 1
        victims = choose(self._policy, count, self._leases, pinned=self.pinned.mask)
        self._leases[kept] -= 1
        if len(victims) < count:
            return None
        names = [self._name_at[slot] for slot in victims]
        self._forget(victims)
        return names

    def clear(self) -> None:
        """Forget every chunk and request, and all that the policy has learned."""
        self.tenure = object()
        self._policy = self._make(self.slots)
        self._leases[:] = 0
        self._slot_of: dict[Key, int] = {}
        self._name_at: dict[int, Key] = {}
        self._news: list[Key] = []  # added, and not told to the policy yet
        self._awaited_by: dict[Key, Visit] = {}
        self.pinned.replace(())

    def check_invariants(self) -> None:
        """The policy orders exactly what is here, and pins are where they belong."""
        self._settle()
        assert self._policy.tracked() == set(self._name_at), "host: policy out of step"
        assert self._name_at == {slot: name for name, slot in self._slot_of.items()}
        self.pinned.check_invariants()

    # Helpers.

    def _held(self, coming: Collection[Key]) -> Callable[[Key], bool]:
        return lambda name: name in self._slot_of or name in coming

    def _begin(self, visit: Visit, group: bytes, keys: list[Key], at_s: float) -> Request:
        tokens = visit.chains.ends[keys[-1]]
        request = Request(keys=keys, at_s=at_s, tokens=tokens, hint=visit.hint)
        visit.begun[group] = request
        self._policy.begin(request)
        self.touch(keys)
        return request

    def _ending(
        self, visit: Visit, group: bytes, reach: int, at_s: float
    ) -> tuple[Request, Ending]:
        """How one group of a request ended, of which `reach` tokens were seen."""
        chains = visit.chains
        chain = chains.of(group)
        seen = chain[: chains.reaching(chain, reach)]
        request = visit.begun.get(group)
        if request is None:
            request = self._begin(visit, group, without_gaps(seen, self._held(())), at_s)
        made = seen[chains.reaching(chain, request.tokens) :]
        asked = request.keys[: chains.reaching(request.keys, reach)]
        return request, Ending(
            keys=[*asked, *made], at_s=at_s, output_tokens=max(0, reach - request.tokens)
        )

    def _settle(self) -> None:
        """Tell the policy of chunks that were added."""
        if self._news:
            names, self._news = self._news, []
            slots = [self._slot_of[name] for name in names]
            self._policy.insert(slots, names, [self._parent(name) for name in names])
            self.pinned.published(slots, names)

    def _parent(self, name: Key) -> Key:
        visit = self._awaited_by.get(name)
        found = None if visit is None else visit.chains.before(name, self._slot_of.__contains__)
        return ROOT if found is None else found

    def _forget(self, slots: Sequence[int]) -> None:
        self._policy.remove(slots)
        self.pinned.gone(slots)
        for slot in slots:
            del self._slot_of[self._name_at.pop(slot)]
