"""Faults below Pagoda's drives in a server's process, switched from the test while it runs.

The JSON file that FAULTS_BELOW_PAGODA names is read before every read and write of a slab:

    {"flip": 0.1}          of reads, how many get a byte changed
    {"short": 0.1}         how many end early
    {"error": 0.1}         of reads and writes, how many fail with EIO
    {"full": 1.0}          of writes, how many fail with ENOSPC
    {"late": 0.1, "late_s": 0.5}   of reads, how many come back that much later
    {"stuck": true}        reads hang until this is gone
    {"unsealed": true}     the seal's check is off: what was read is served, whatever it is

Chance is drawn from `seed` in the order of the calls; another seed begins anew.
"""

from __future__ import annotations

import errno
import json
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_STEP_S = 0.01
_PAUSE_S = 0.2  # a drive that failed is left alone that long, not for 5 to 80 s, and is never
_NEVER = 1_000_000  # fenced: that would end with the next trial block, a minute later


class Plan:
    """What is to go wrong now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._random = random.Random()
        self._seed: int | None = None

    def now(self) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads(self._path.read_text())
        return plan

    def strikes(self, what: str) -> bool:
        """Whether this call is one of those that go wrong."""
        plan = self.now()
        chance, seed = plan.get(what, 0), plan.get("seed", 0)
        with self._lock:
            if seed != self._seed:
                self._seed = seed
                self._random.seed(seed)
            return bool(chance) and self._random.random() < chance

    def one_of(self, count: int) -> int:
        """A number below `count`."""
        with self._lock:
            return self._random.randrange(count)


def install(path: Path) -> None:
    """Put the faults between Pagoda and its slabs."""
    from pagoda.store import trust
    from pagoda.tiers import sealed
    from pagoda.tiers.drive.file import SlabFile

    plan = Plan(path)
    trust._FIRST_PAUSE_S = trust._LONGEST_PAUSE_S = _PAUSE_S
    trust.FAULTS_TO_FENCE = _NEVER
    SlabFile.read_payloads = _reading(SlabFile.read_payloads, plan)
    SlabFile.write_payloads = _writing(SlabFile.write_payloads, plan)
    judge = sealed.SealedTier._judge

    def believe(self: Any, order: Any, arrived: Any, target: Any, buffer: Any) -> Any:
        if plan.now().get("unsealed") and not isinstance(arrived, sealed.Unavailable):
            return self._hit
        return judge(self, order, arrived, target, buffer)

    sealed.SealedTier._judge = believe


def _reading(read: Callable[..., list[int]], plan: Plan) -> Callable[..., list[int]]:
    def read_payloads(self: Any, into: Sequence[memoryview], offsets: Sequence[int]) -> list[int]:
        while plan.now().get("stuck"):
            time.sleep(_STEP_S)
        if plan.strikes("late"):
            time.sleep(plan.now()["late_s"])
        if plan.strikes("error"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        counts = read(self, into, offsets)
        if plan.strikes("flip"):
            buffer = into[plan.one_of(len(into))]
            buffer[plan.one_of(len(buffer))] ^= 0x10
        if plan.strikes("short"):
            cut = plan.one_of(len(counts))
            counts[cut] = plan.one_of(max(1, counts[cut]))
        return counts

    return read_payloads


def _writing(write: Callable[..., int], plan: Plan) -> Callable[..., int]:
    def write_payloads(self: Any, buffers: Sequence[memoryview], offset: int) -> int:
        for what, number in (("error", errno.EIO), ("full", errno.ENOSPC)):
            if plan.strikes(what):
                raise OSError(number, os.strerror(number))
        return write(self, buffers, offset)

    return write_payloads
