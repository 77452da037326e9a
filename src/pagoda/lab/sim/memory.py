"""Device memory of a simulated engine, and what must be in it at every moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pagoda.core.holdings import Selection
from pagoda.core.identity import Key
from pagoda.engine.device import DeviceBlocks
from pagoda.lab.sim.failure import Check, ensure
from pagoda.lab.sim.world import BLOCK_BYTES

DIRTY = b"\xdd" * BLOCK_BYTES  # somebody else's bytes, before a block is filled
_GONE = b"\xee" * BLOCK_BYTES  # what a private block is overwritten with once given back
_ZEROS = bytes(BLOCK_BYTES)


class DeviceMemory:
    """The engine's real block table over real bytes, each block with its expected content;
    None where an I/O thread may write at any moment."""

    def __init__(self, blocks: int, *, policy: str) -> None:
        region = memoryview(bytearray(blocks * BLOCK_BYTES))
        self.views = [
            region[start : start + BLOCK_BYTES] for start in range(0, len(region), BLOCK_BYTES)
        ]
        self.blocks = DeviceBlocks(blocks, view=self.views.__getitem__, policy=policy)
        self._expected: list[bytes | None] = [_ZEROS] * blocks

    def take_prefix(self, keys: Sequence[Key], truths: Sequence[bytes]) -> list[int]:
        """Lease the longest cached prefix, and look at it."""
        blocks = self.blocks.take_prefix(keys)
        for block, truth in zip(blocks, truths, strict=False):
            self.check(block)
            ensure(self.views[block] == truth, Check.BYTES, f"device block {block} is another's")
        return blocks

    def reserve(self, count: int) -> list[int] | None:
        """Blocks to fill, dirty as memory is."""
        blocks = self.blocks.reserve(count)
        if blocks is None:
            return None
        promised = f"{len(blocks)} device blocks were reserved instead of {count}"
        ensure(len(blocks) == count, Check.ROOM, promised)
        for block in blocks:
            self.check(block)
            self.fill(block, DIRTY)
        return blocks

    def fill(self, block: int, content: bytes) -> None:
        """The engine itself writes a block."""
        self.views[block][:] = content
        self._expected[block] = content

    def lend(self, blocks: Iterable[int]) -> None:
        """I/O threads may write there from now on."""
        for block in blocks:
            self._expected[block] = None

    def settled(self, block: int) -> bool:
        """Whether no I/O thread may write to a block now."""
        return self._expected[block] is not None

    def landed(self, block: int) -> None:
        """Nobody writes there any more: what is there now, stays."""
        self._expected[block] = bytes(self.views[block])

    def give_back(self, blocks: Sequence[int]) -> None:
        """Let go of blocks. Private ones are free at once, and overwritten."""
        for block in blocks:
            self.check(block)
            if self.blocks.state.key_of(block) is None:
                self.fill(block, _GONE)
        self.blocks.give_back(blocks)

    def links(self) -> Iterable[tuple[Key, Key]]:
        """Parents are not remembered here; only a prefix' clearing asks for them."""
        return ()

    def drop(self, selection: Selection, keys: frozenset[Key] | None) -> int:
        """Forget everything: no other selection is cleared in the simulation."""
        del selection, keys
        return self.blocks.forget()

    def check(self, block: int) -> None:
        """Nobody wrote into a block since the engine looked last."""
        expected = self._expected[block]
        ensure(
            expected is None or self.views[block] == expected,
            Check.MEMORY,
            f"device block {block} was written to by somebody who had no right to",
        )
