"""Requests for vLLM's manager of host memory, one random call after the other, as its scheduler
makes them: look up, load, offer, finish, and what comes between them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_CHUNK_TOKENS = 16
_OPEN = 4  # requests at a time
_WINDOW = 2  # chunks that a sliding group stores of a prompt
_OWNERS = ("a", "b")
_SESSIONS = ("none", "alive", "closed", "tool")


@dataclass
class Running:
    """A request: its chunks by group, how far it was offered, and what is on its way."""

    context: Any
    chains: list[list[bytes]]
    prompt: int
    offered: int = 0
    loading: list[bytes] = field(default_factory=list)
    storing: list[list[bytes]] = field(default_factory=list)
    finished: bool = False


class Traffic:
    """`context` makes a request's ReqContext of an id and its parameters."""

    def __init__(
        self,
        manager: Any,
        context: Callable[[str, dict[str, Any] | None], Any],
        *,
        seed: int,
        groups: int = 1,
        pins: bool = True,
    ) -> None:
        self.manager = manager
        self.refused = 0
        self._context = context
        self._rng = random.Random(seed)
        self._groups = groups
        self._pins = pins
        self._number = 0
        self._running: list[Running] = []

    def run(self, steps: int, check: Callable[[], None]) -> None:
        """So many calls, with a check behind each."""
        for _ in range(steps):
            self._step()
            check()

    def drain(self) -> None:
        """Let what runs come to its end."""
        while self._running:
            self._advance(self._running[0])

    def _step(self) -> None:
        rng = self._rng
        if len(self._running) < _OPEN and rng.random() < 0.4:
            self._begin()
            return
        if rng.random() < 0.004:
            self.manager.reset_cache()
            self._running = [one for one in self._running if not one.finished]
            for one in self._running:
                one.loading, one.storing, one.offered = [], [], 0
            return
        if rng.random() < 0.02:
            self._stray()
        if self._running:
            self._advance(rng.choice(self._running))

    def _begin(self) -> None:
        """A prompt out of a tree of them, sometimes with the answer to come."""
        rng = self._rng
        self._number += 1
        path = [min(rng.randrange(4), rng.randrange(4)) for _ in range(rng.randint(1, 9))]
        context = self._context(f"r{self._number}", self._params())
        chains: list[list[bytes]] = [[] for _ in range(self._groups)]
        one = Running(context, chains, len(path))
        self._name(one, path)
        self._look_up(one)
        self._running.append(one)

    def _name(self, one: Running, path: list[int]) -> None:
        for number in range(len(one.chains[0]), len(path)):
            digest = hashlib.sha256(bytes(path[: number + 1])).digest()
            for group, chain in enumerate(one.chains):
                chain.append(digest + group.to_bytes(4, "big"))
                one.context.set_offload_key_position(chain[-1], (number + 1) * _CHUNK_TOKENS)

    def _params(self) -> dict[str, Any] | None:
        rng = self._rng
        if not self._pins or rng.random() < 0.7:
            return None
        said: dict[str, Any] = {"pagoda_session": rng.choice(_SESSIONS), "do_remote_decode": False}
        if rng.random() < 0.5:
            said["pagoda_pin"] = {"owner": rng.choice(_OWNERS), "expires_s": rng.choice([0.02, 60])}
        if rng.random() < 0.2:
            said["pagoda_unpin"] = rng.choice(_OWNERS)
        return said

    def _look_up(self, one: Running) -> None:
        """Load what host memory has of the prompt, behind what the device may have."""
        first = self._rng.choice([0, 0, one.prompt // 2])
        hits = 0
        for at in range(first, one.prompt):
            names = [chain[at] for chain in one.chains]
            if any(self.manager.lookup(name, one.context).name != "HIT" for name in names):
                break
            hits += 1
        if hits:
            one.loading = [n for chain in one.chains for n in chain[first : first + hits]]
            self.manager.prepare_load(one.loading, one.context)
            one.offered = first + hits

    def _advance(self, one: Running) -> None:
        rng = self._rng
        if one.loading:
            self.manager.complete_load(one.loading, one.context)
            one.loading = []
        elif one.storing and rng.random() < 0.6:
            names = one.storing.pop(0)
            self.manager.complete_store(names, one.context, rng.random() > 0.05)
        elif not one.finished and one.offered < len(one.chains[0]) and rng.random() < 0.9:
            self._offer(one)
        elif not one.finished:
            one.finished = True
            self.manager.on_request_finished(one.context)
        if one.finished and not one.storing:
            self._running.remove(one)

    def _offer(self, one: Running) -> None:
        rng = self._rng
        until = rng.randint(one.offered + 1, len(one.chains[0]))
        names = one.chains[0][one.offered : until]
        for chain in one.chains[1:]:  # sliding windows: the last chunks alone
            names = names + chain[max(one.offered, until - _WINDOW) : until]
        output = self.manager.prepare_store(names, one.context)
        if output is None:
            self.refused += 1
            return
        one.offered = until
        if output.keys_to_store:
            one.storing.append(list(output.keys_to_store))
        if until == one.prompt == len(one.chains[0]) and rng.random() < 0.3:
            more = [rng.randrange(4), self._number % 256]
            path = [0] * one.prompt + more  # names of an answer are its own: only the length counts
            self._name(one, path)

    def _stray(self) -> None:
        """A chunk that is no request's, as HeldChunks takes them."""
        context = self._context("stray", None)
        name = bytes([self._rng.randrange(8)]) * 32 + bytes(4)
        output = self.manager.prepare_store([name], context)
        if output is not None and output.keys_to_store:
            self.manager.complete_store([name], context, self._rng.random() > 0.5)
        self.manager.touch([name], context)
