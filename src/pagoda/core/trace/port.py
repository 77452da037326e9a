"""The codec port: one class a format, which reads its lines and knows no files."""

from __future__ import annotations

from typing import Protocol

from pagoda.core.trace.model import TraceRequest

NAMES = 1 << 64  # a block's name in a trace is below this
TOKENS = 1 << 22  # tokens of a prompt, or of an answer: no model has as many
BLOCKS = 1 << 26  # of all requests together, each as often as it is named: a compressed file of a
# few megabytes could name more than fit into memory
SECONDS = 1e10  # no trace is longer, and no clock further from its zero


class Malformed(ValueError):
    """A line is not what its format demands; says what is wrong, the reader adds where."""


class Unreadable(ValueError):
    """A file that no line of can be read, however many are skipped; says why."""


class Codec(Protocol):
    """Reads one format, line by line.

    A line that raises Malformed has changed nothing. Requests come out in order of arrival,
    whatever the order of the lines; those of the same moment in the order of their lines.
    """

    format: str
    block_tokens: int

    def take(self, line: str) -> None:
        """Take in a line, without its end. Raises Malformed, and Unreadable for a file that is
        of another version."""
        ...

    def requests(self) -> list[TraceRequest]:
        """What the lines said, once there are no more."""
        ...
