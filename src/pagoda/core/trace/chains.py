"""Numbers for chained blocks."""

from __future__ import annotations

from collections.abc import Iterable

from pagoda.core.trace.port import BLOCKS, NAMES, Malformed


class Chains:
    """One number for each different prefix, in order of appearance.

    A name is that of a block by its content alone, or of its whole prefix: either way a number
    stands for the names up to and with the block, so it has one parent and occurs once in a
    prompt, whatever a trace says.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._next = 0
        self._counted = 0

    def count(self, blocks: int) -> None:
        """Another request has so many blocks with its answer's. Raises Malformed, and counts
        nothing, when all together have more than BLOCKS."""
        if self._counted + blocks > BLOCKS:
            raise Malformed(f"all requests together have more than {BLOCKS} blocks")
        self._counted += blocks

    def number(self, names: Iterable[int], *, behind: int | None = None) -> tuple[int, ...]:
        """The numbers of a chain of blocks, which goes on behind a numbered one or begins.
        Names lie in [0, NAMES)."""
        numbers: list[int] = []
        link = 0 if behind is None else behind + 1  # one more than the parent's number
        for name in names:
            link = self._numbers.setdefault(link * NAMES + name, self._next) + 1
            self._next = max(self._next, link)
            numbers.append(link - 1)
        return tuple(numbers)

    def fresh(self, count: int) -> tuple[int, ...]:
        """Numbers that stand for no other block, ever."""
        self._next += count
        return tuple(range(self._next - count, self._next))
