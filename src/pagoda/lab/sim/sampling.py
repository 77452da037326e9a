"""The sampled check in a simulated engine: what it withholds, computes again and hands over.

Now and then the engine computes a checked block otherwise, as a spoiled device would. Then, and
never else, the store may call a copy wrong, and put its namespace in quarantine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from pagoda.core.checking import Form
from pagoda.core.identity import Key, NamespaceId
from pagoda.lab.sim.failure import Check, ensure
from pagoda.lab.sim.memory import DeviceMemory
from pagoda.lab.sim.world import BLOCK_BYTES, Prompt
from pagoda.store.block import Block
from pagoda.store.store import CheckPlan, Store

PLAN = CheckPlan(
    rate=0.1,
    most_blocks=3,
    form=Form(dtype="float32", parts=2, part_bytes=BLOCK_BYTES // 2, exact=True),
    key=b"simulation",
)
_OTHERWISE = 0.02  # of the blocks that are checked in a storm
_POISON = b"\xbb" * BLOCK_BYTES


class Sampling:
    """The checks of one life of a node."""

    def __init__(self, store: Store, memory: DeviceMemory, rng: random.Random) -> None:
        self.withheld = 0  # blocks that were there, and computed all the same
        self.open: dict[int, Block] = {}  # handed over by id, until they are given back
        self._otherwise: set[NamespaceId] = set()
        self._store = store
        self._memory = memory
        self._rng = rng

    def withhold(self, keys: Sequence[Key]) -> range:
        """Which blocks of a request's are computed though they are there, to be compared."""
        found = len(self._memory.blocks.state.prefix(keys))
        found += self._store.match(keys[found:])
        allowed = self._store.checks.allow(found)
        ensure(0 <= allowed <= found, Check.PREFIX, "a check allows more than there is")
        self.withheld += found - allowed
        return range(allowed, found)

    def compare(self, prompt: Prompt, position: int, *, calm: bool) -> None:
        """A withheld block was computed: all copies are held against it, before it is saved."""
        computed = bytearray(prompt.truths[position])
        wrong = not calm and self._rng.random() < _OTHERWISE
        if wrong:
            computed[self._rng.randrange(BLOCK_BYTES)] ^= 1
            self._otherwise.add(prompt.namespace)
        block = prompt.block(position, memoryview(computed))
        cached = self._memory.blocks.state.slot_of(prompt.keys[position])
        if cached is not None and self._memory.settled(cached):
            self._store.checks.hold_against("device", block, self._memory.views[cached])
            barred = self._store.quarantine.bars(prompt.namespace)
            ensure(barred or not wrong, Check.JUDGED, "another block than stored is called right")
        handed = replace(block)
        self.open[id(handed)] = handed
        self._store.checks.compare([handed], self._release)

    def barred(self, namespace: str) -> None:
        """The store tells of a namespace in quarantine."""
        known = NamespaceId(bytes.fromhex(namespace)) in self._otherwise
        ensure(known, Check.JUDGED, "a namespace is in quarantine, and all its blocks are right")

    def _release(self, block: Block) -> None:
        mine = self.open.pop(id(block), None) is block
        ensure(mine, Check.RELEASE, "a compared block was given back twice, or was never taken")
        block.payload[:] = _POISON  # its memory is used for something else
