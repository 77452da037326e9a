"""What PagodaPolicy must decide, said plainly: vLLM's calls, told to a policy of core/policy as the
port has it, with everything looked for anew at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagoda.core.identity import ROOT, Key
from pagoda.core.policy import REGISTRY, Ending, Hint, Policy, Request

POLICIES = {kind.__name__: kind for kind in REGISTRY.values() if isinstance(kind, type)}
Ends = dict[Key, int]


@dataclass
class Pinned:
    """A pin: whose, of what, and until when."""

    owner: str
    names: list[Key]
    until_ms: float


class NaiveHost:
    """Takes the events of policy_recorder one by one; every answer to `evict` must be its own."""

    def __init__(self) -> None:
        self.evictions = 0
        self.evicted: list[Key] = []
        self.pinned_evicted = 0

    def take(self, event: dict[str, Any]) -> None:
        """One call that vLLM made."""
        getattr(self, event["call"])(event)

    def new(self, event: dict[str, Any]) -> None:
        self.slots: int = event["slots"]
        self.make: Callable[[int], Policy] = POLICIES[event["policy"]]
        self.total, self.owner = (int(share * self.slots) for share in event["pins"])
        self.clear(event)

    def clear(self, event: dict[str, Any]) -> None:
        self.policy = self.make(self.slots)
        self.here: dict[Key, int] = {}
        self.busy: set[Key] = set()
        self.news: list[Key] = []
        self.lacked: dict[Key, tuple[str, Ends]] = {}
        self.open: dict[tuple[str, bytes], Request] = {}
        self.pins: list[Pinned] = []

    def insert(self, event: dict[str, Any]) -> None:
        name = _key(event["name"])
        self.here[name] = event["slot"]
        self.news.append(name)
        if not event["free"]:
            self.busy.add(name)

    def remove(self, event: dict[str, Any]) -> None:
        self.settle()
        name = _key(event["name"])
        self.policy.remove([self.here.pop(name)])
        self.busy.discard(name)

    def touch(self, event: dict[str, Any]) -> None:
        self.settle()
        self.use(map(_key, event["names"]))

    def mark_evictable(self, event: dict[str, Any]) -> None:
        self.busy.discard(_key(event["name"]))

    def mark_non_evictable(self, event: dict[str, Any]) -> None:
        self.busy.add(_key(event["name"]))

    def on_store_miss(self, event: dict[str, Any]) -> None:
        self.settle()
        ends = _ends(event)
        coming = [name for name in map(_key, event["names"]) if name in ends]
        for group in sorted({name[-4:] for name in coming}, key=lambda g: _first(coming, g)):
            if (event["request"], group) not in self.open:
                self.begin(event, group, {*self.here, *coming}, max(ends.values()))
        for name in coming:
            self.lacked[name] = (event["request"], ends)

    def on_request_finished(self, event: dict[str, Any]) -> None:
        self.settle()
        ends = _ends(event)
        seen = [[_key(name) for name in names] for names in event["groups"]]
        known = [name for names in seen for name in names if name in ends]
        groups = [group for request, group in self.open if request == event["request"]]
        groups += [g for g in sorted({n[-4:] for n in known}, key=lambda g: _first(known, g))]
        over: list[tuple[Request, Ending]] = []
        for group in dict.fromkeys(groups):
            reach = max((ends[name] for name in known if name[-4:] == group), default=0)
            request = self.open.pop((event["request"], group), None)
            if request is None:
                request = self.begin(event, group, set(self.here), reach)
                del self.open[event["request"], group]
            keys = [key for key in request.keys if ends[key] <= reach]
            keys += [n for n in _chain(ends, group) if request.tokens < ends[n] <= reach]
            made = max(0, reach - request.tokens)
            ending = Ending(keys=keys, at_s=event["at_s"], output_tokens=made)
            over.append((request, ending))
        used = sorted((key for _, ending in over for key in ending.keys), key=ends.__getitem__)
        self.use([*used, *(n for names in seen for n in names if n not in ends)])
        for request, ending in over:
            self.policy.end(request, ending)
        self.lacked = {n: by for n, by in self.lacked.items() if by[0] != event["request"]}
        prompt = [k for request, ending in over for k in ending.keys if k in set(request.keys)]
        self.heed(event, prompt)

    def evict(self, event: dict[str, Any]) -> None:
        self.settle()
        self.pins = [pin for pin in self.pins if pin.until_ms > event.get("wall_ms", 0)]
        spared = {_key(name) for name in event["spared"]}
        kept = {name for pin in self.pins for name in pin.names}
        leases = np.zeros(self.slots, dtype=np.int32)
        leases[[self.here[name] for name in {*self.busy, *spared} if name in self.here]] = 1
        pinned = leases.copy()
        pinned[[self.here[name] for name in kept if name in self.here]] = 1
        victims = named = self.policy.victims(event["count"], leases)
        if any(pinned[slot] for slot in named):
            victims = self.policy.victims(event["count"], pinned)
            victims += [slot for slot in named if slot not in victims]
            del victims[event["count"] :]
        name_at = {slot: name for name, slot in self.here.items()}
        names = [name_at[slot] for slot in victims]
        expected = [name.hex() for name in names] if len(names) == event["count"] else None
        assert event["answer"] == expected, f"{event['answer']} went, not {expected}"
        if expected is not None:
            self.policy.remove(victims)
            for name in names:
                del self.here[name]
            self.evictions += bool(names)
            self.evicted += names
            self.pinned_evicted += sum(name in kept for name in names)

    def begin(self, event: dict[str, Any], group: bytes, held: set[Key], reach: int) -> Request:
        """The policy hears of a request: of all its chunks but for gaps, as far as `reach`."""
        ends = _ends(event)
        chain = [name for name in _chain(ends, group) if ends[name] <= reach]
        there = [name in held for name in chain]
        keys = [name for at, name in enumerate(chain) if there[at] or not any(there[at:])]
        hint = Hint((event["params"] or {}).get("pagoda_session", "none"))
        request = Request(keys=keys, at_s=event["at_s"], tokens=ends[keys[-1]], hint=hint)
        self.open[event["request"], group] = request
        self.policy.begin(request)
        self.use(keys)
        return request

    def heed(self, event: dict[str, Any], prompt: list[Key]) -> None:
        """What the request says of pins."""
        said = event["params"] or {}
        if "pagoda_unpin" in said:
            self.pins = [pin for pin in self.pins if pin.owner != said["pagoda_unpin"]]
        wish = said.get("pagoda_pin")
        if wish is None or not prompt:
            return
        self.pins = [pin for pin in self.pins if pin.until_ms > event["wall_ms"]]
        pin = Pinned(wish["owner"], prompt, event["wall_ms"] + wish.get("expires_s", 86_400) * 1000)
        others = [p for p in self.pins if (p.owner, p.names[-1]) != (pin.owner, prompt[-1])]
        of_all = {name for p in [*others, pin] for name in p.names}
        of_owner = {name for p in [*others, pin] if p.owner == pin.owner for name in p.names}
        own = int(wish.get("budget", 1) * self.slots)
        if len(of_all) <= self.total and len(of_owner) <= self.owner and len({*prompt}) <= own:
            self.pins = [*others, pin]

    def use(self, names: Iterable[Key]) -> None:
        self.policy.touch([self.here[name] for name in names if name in self.here])

    def settle(self) -> None:
        """Tell the policy of what was inserted since the last call of another kind."""
        news, self.news = self.news, []
        if news:
            parents = [self.parent(name) for name in news]
            self.policy.insert([self.here[name] for name in news], news, parents)

    def parent(self, name: Key) -> Key:
        if name not in self.lacked:
            return ROOT
        ends = self.lacked[name][1]
        before = [n for n in _chain(ends, name[-4:]) if n in self.here and ends[n] < ends[name]]
        return before[-1] if before else ROOT


def _key(name: str) -> Key:
    return Key(bytes.fromhex(name))


def _ends(event: dict[str, Any]) -> Ends:
    return {_key(name): end for name, end in event["ends"]}


def _chain(ends: Ends, group: bytes) -> list[Key]:
    return sorted((name for name in ends if name[-4:] == group), key=ends.__getitem__)


def _first(names: list[Key], group: bytes) -> int:
    return next(at for at, name in enumerate(names) if name[-4:] == group)
