"""The lines of a chunk of bytes, and how those that a terminal broke are made whole again."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .normalise import MAX_LINE_CHARS, normalise

__all__ = ["Lines"]

_WRAP_BYTES = range(40, 251)
_EXCEPTION = re.compile(r"Traceback \(|(?:[a-z_]\w{0,40}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception): ")


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a chunk: where each ends, and what number it has in its file."""

    chunk: bytes
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]

    def starts(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where lines start, given by their places in the chunk."""
        return np.where(at > 0, self.ends[at - 1] + 1, 0)

    def text(self, at: int) -> str:
        """A line, cut to what a pattern may see."""
        return self.around(at, 0, 0).decode("utf-8", "replace")

    def around(self, at: int, first: int, last: int) -> bytes:
        """A line's bytes, or, of a very long one, those around the positions first to last."""
        start = int(self.ends[at - 1]) + 1 if at else 0
        end = int(self.ends[at])
        if end - start > MAX_LINE_CHARS:
            start = max(start, first - 512)
            end = min(end, max(start, last) + MAX_LINE_CHARS)
        return self.chunk[start:end]

    def bare(self, at: int) -> bool:
        """Whether a line is not empty and starts without any prefix: it may continue another."""
        line = normalise(self.text(at))
        return bool(line.message) and not line.prefixed and not line.text[0].isspace()

    def full(self, width: int) -> list[int]:
        """The lines of exactly that width, the last line left out."""
        lengths = np.diff(self.ends, prepend=-1) - 1
        return [int(at) for at in np.flatnonzero(lengths[:-1] == width)]

    def wrap_width(self) -> int:
        """The width at which a terminal or an editor broke the lines; 0 when none did.

        Equal lengths alone prove nothing (lines of one kind have them): what follows a full
        line must mostly be bare text, not exceptions alone, which Python prints without a
        prefix, and some full lines must carry prefixes.
        """
        widest = int((np.diff(self.ends, prepend=-1) - 1).max(initial=0))
        if widest not in _WRAP_BYTES:
            return 0
        full = self.full(widest)[:200]
        if len(full) < max(2, len(self.ends) // 20):
            return 0
        bare = [at + 1 for at in full if self.bare(at + 1)]
        broken = any(not _EXCEPTION.match(self.text(at)) for at in bare)
        prefixed = any(normalise(self.text(at)).prefixed for at in full[:50])
        return widest if len(bare) >= 0.6 * len(full) and broken and prefixed else 0

    def unwrapped(self, width: int) -> Lines:
        """The lines with those joined that were broken at `width`, under the first one's number."""
        broken = np.zeros(len(self.ends), dtype=bool)
        broken[[at for at in self.full(width) if self.bare(at + 1)]] = True
        keep = np.ones(len(self.chunk), dtype=bool)
        keep[self.ends[broken]] = False
        joined = np.frombuffer(self.chunk, dtype=np.uint8)[keep].tobytes()
        starts = np.concatenate(([True], ~broken[:-1]))
        ends = np.flatnonzero(np.frombuffer(joined, dtype=np.uint8) == 10)
        return Lines(joined, ends, self.numbers[starts])
