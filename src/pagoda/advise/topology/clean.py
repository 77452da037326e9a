"""Text of a terminal made plain: no colour codes, no carriage returns, no table bars.

Real pastes carry colour codes whose escape byte was lost, non-breaking spaces, quote
marks, Markdown bars and lines that the terminal wrapped. Every expression here is linear.
"""

from __future__ import annotations

import re

__all__ = ["INPUT_LIMIT_BYTES", "plain_lines", "was_cut"]

# Longer than any real matrix (72 GPUs and as many NICs take about 200 KB).
INPUT_LIMIT_BYTES = 4 << 20
_LINE_LIMIT = 16_384

# The escape byte is often gone after a copy; what stays is a bracket, digits and an m.
_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\[[0-9;]{1,16}m|\x1b")
_BARS = str.maketrans({"|": " ", "│": " ", "║": " ", "\u00a0": " ", "\ufeff": None, "\x00": None})
_QUOTE = re.compile(r"^[ ]{0,3}>{1,3} ?")


def plain_lines(text: str) -> list[str]:
    """Split text into lines without colour codes, bars and quote marks."""
    shown = text[:INPUT_LIMIT_BYTES].replace("\r\n", "\n").replace("\r", "\n")
    # Tabs stay: an empty cell can only be seen between two of them.
    return [_plain(line) for line in shown.split("\n")]


def _plain(line: str) -> str:
    bare = _COLOUR.sub("", line[:_LINE_LIMIT])
    return _QUOTE.sub("", bare.translate(_BARS))


def was_cut(text: str) -> bool:
    """Tell whether the text ends in the middle of a line."""
    return bool(text) and not text.endswith(("\n", "\r"))
