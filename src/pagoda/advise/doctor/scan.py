"""A fast scan: which lines of a chunk of bytes can matter to any sign.

Each needle is represented by one five-byte window. All five-byte windows of a chunk are
looked up in a table at once with numpy, eight passes of unaligned 64-bit words, so the
price of a gigabyte does not depend on the number of needles. Case is folded by setting
bit 5 of every byte on both sides; what that confuses, the exact check sorts out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["WINDOW_BYTES", "NeedleScan"]

WINDOW_BYTES = 5
_MASK = np.uint64(0xFF_FFFF_FFFF)
_TABLE_BITS = 18
_MULTIPLIER = np.uint64(0x9E37_79B9_7F4A_7C15)
_SHIFT = np.uint64(64 - _TABLE_BITS)
_FOLD = np.uint8(0x20)
# How common a byte is in logs, commonest first: a window of rare bytes gives few false hits.
_COMMON = b" e0tina1ro2s3l-:p56dc4.m7u89_/fgvhykbwxq,=()[]'\"jz"
_RARITY = {byte | 0x20: len(_COMMON) - place for place, byte in enumerate(_COMMON)}


def _window(needle: bytes) -> int:
    """The code of the needle's rarest five bytes."""
    folded = bytes(byte | 0x20 for byte in needle)
    windows = [folded[at : at + WINDOW_BYTES] for at in range(len(folded) - WINDOW_BYTES + 1)]
    rarest = min(windows, key=lambda window: sum(_RARITY.get(byte, 0) for byte in window))
    return int.from_bytes(rarest, "little")


class NeedleScan:
    """Finds where any of many needles may lie in a chunk of bytes."""

    def __init__(self, needles: Iterable[str]) -> None:
        self.needles = tuple(dict.fromkeys(needles))
        codes: dict[int, list[int]] = {}
        for index, needle in enumerate(self.needles):
            raw = needle.encode()
            assert len(raw) >= WINDOW_BYTES, f"needle {needle!r} is shorter than the window"
            assert needle == needle.lower(), f"needle {needle!r} must be lower case"
            codes.setdefault(_window(raw), []).append(index)
        self._codes = np.array(sorted(codes), dtype=np.uint64)
        self._by_code = [tuple(codes[int(code)]) for code in self._codes]
        self._table = np.zeros(1 << _TABLE_BITS, dtype=bool)
        self._table[_hash(self._codes)] = True

    def hits(self, chunk: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions (ascending) and code numbers of all windows found in the chunk."""
        padded = np.frombuffer(chunk + b"\0" * 16, dtype=np.uint8) | _FOLD
        positions, numbers = [], []
        for offset in range(8):
            words = padded[offset : offset + (len(padded) - offset) // 8 * 8].view(np.uint64)
            codes = words & _MASK
            candidates = np.flatnonzero(self._table[_hash(codes)])
            found = codes[candidates]
            place = np.searchsorted(self._codes, found)
            place[place == len(self._codes)] = 0
            exact = self._codes[place] == found
            positions.append(candidates[exact] * 8 + offset)
            numbers.append(place[exact])
        where = np.concatenate(positions)
        order = np.argsort(where, kind="stable")
        return where[order], np.concatenate(numbers)[order]

    def needles_of(self, number: int) -> tuple[int, ...]:
        """The needles that a code number stands for."""
        return self._by_code[number]

    @property
    def codes(self) -> int:
        """How many distinct windows are looked for."""
        return len(self._by_code)


def _hash(codes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Table places of window codes."""
    return ((codes * _MULTIPLIER) >> _SHIFT).astype(np.int64)
