"""Prefetching: a prompt's blocks are brought up into the fastest tier before anybody asks.

Blocks travel as they do for a request: read and verified into memory of the prefetch, a few at a
time, then stored. One that cannot be had ends it, for those behind it are useless without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagoda.core.holdings import Prefetched, PrefetchState
from pagoda.core.identity import Key, NamespaceId
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.block import Block
from pagoda.store.restore import Restore
from pagoda.store.store import Store

_RUN_BYTES = 16 << 20
_PAGE_BYTES = 4096


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks on their way up: first their restore, then their being stored."""

    blocks: list[Block]
    restore: Restore
    stored: int = 0
    storing: bool = False


class Prefetch:
    """One prefetch on its way. Owner's thread.

    `blocks` are a prompt's in `namespace`, in order, whose payloads are filled in here;
    `payload_bytes` is the size of each.
    """

    def __init__(
        self,
        store: Store,
        blocks: Sequence[Block],
        *,
        namespace: NamespaceId,
        id: str,
        payload_bytes: int,
    ) -> None:
        self.namespace = namespace
        self._store = store
        self._upper = store.ranks()[0].levels if store.ranks() else ()
        self._blocks = blocks
        self._left: list[Block] = []
        keys = [block.key for block in blocks]
        self._probe = store.probe(namespace, keys) if blocks else None
        self._planned = False
        self._stopped = False
        self._room = sum(level.state.slots for level in self._upper)
        self._size_bytes = payload_bytes
        self._outcome = PrefetchState.DONE  # once nothing is left
        self._run: _Run | None = None
        self._progress = Prefetched(id=id, state=PrefetchState.RUNNING, blocks=0, present=0, done=0)

    @property
    def progress(self) -> Prefetched:
        """How far it is."""
        return self._progress

    def poll(self) -> None:
        """Go on as far as the I/O allows."""
        while self._progress.state is PrefetchState.RUNNING and self._step():
            pass

    def stop(self) -> None:
        """Ask for nothing more, and store nothing of what is being read: it is to go."""
        if self._progress.state is PrefetchState.RUNNING:
            self._stopped = self._planned = True
            self._stop()

    def _step(self) -> bool:
        """Begin, take in or end a run; False when there is something to wait for."""
        if not self._planned:
            return self._plan()
        run = self._run
        if run is None:
            return self._begin()
        if not run.storing:
            return self._take_in(run)
        if run.stored < len(run.blocks):
            return False
        up = sum(self._is_up(block.key) for block in run.blocks)
        self._progress = replace(self._progress, done=self._progress.done + up)
        self._run = None
        if up < len(run.blocks):
            self._stop()
        return True

    def _plan(self) -> bool:
        """Once a shared store has said what it has: what is held, and what of it is up."""
        if self._probe is not None and not self._probe.done:
            return False
        self._planned = True
        held = self._blocks[: self._store.match([block.key for block in self._blocks])]
        self._left = [block for block in held if not self._is_up(block.key)]
        self._touch(held)
        present = len(held) - len(self._left)
        self._progress = replace(self._progress, blocks=len(held), present=present)
        return True

    def _begin(self) -> bool:
        if not self._left:
            self._progress = replace(self._progress, state=self._outcome)
            return True
        room = self._room - self._progress.present - self._progress.done
        if room <= 0:
            self._stop()  # more would push out its own head
            return True
        count = min(room, max(1, _RUN_BYTES // self._size_bytes))
        blocks, self._left = self._left[:count], self._left[count:]
        step = -(-self._size_bytes // _PAGE_BYTES) * _PAGE_BYTES
        memory = memoryview(aligned_buffer(step * len(blocks)))
        into = [memory[at * step : at * step + self._size_bytes] for at in range(len(blocks))]
        filled = [self._filled(block, view) for block, view in zip(blocks, into, strict=True)]
        restore = self._store.restore([block.key for block in filled], into)
        self._run = _Run(filled, restore)
        return True

    def _filled(self, block: Block, into: memoryview) -> Block:
        """The block as it will be stored: as old as its copy, if a tier of this node tells."""
        created_s = self._store.created_s(block.key)
        return replace(
            block, payload=into, created_ms=None if created_s is None else created_s * 1000
        )

    def _take_in(self, run: _Run) -> bool:
        """Store what has arrived; a late read may still write to what has not."""
        if not (run.restore.done and run.restore.drained):
            return False
        usable = 0 if self._stopped else run.restore.usable_blocks
        if usable < len(run.blocks):
            self._stop()
        run.blocks = run.blocks[:usable]
        run.storing = True

        def stored(block: Block) -> None:
            del block
            run.stored += 1

        self._store.save(run.blocks, stored)
        return True

    def _touch(self, blocks: Sequence[Block]) -> None:
        """What is up already counts as used: bringing up the rest must not push it out."""
        for level in self._upper:
            slots = [level.state.slot_of(block.key) for block in blocks]
            level.residency.touch([slot for slot in slots if slot is not None])

    def _is_up(self, key: Key) -> bool:
        return any(level.state.slot_of(key) is not None for level in self._upper)

    def _stop(self) -> None:
        """Ask for nothing more; what is under way still ends."""
        self._left = []
        self._outcome = PrefetchState.STOPPED
