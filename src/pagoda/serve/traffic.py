"""What the server has taken on: sequences that wait, requests that run, bytes of bodies.

Used from the event loop only, so without locks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pagoda.core.errors import RequestError
from pagoda.serve.channel import Channel, Ending
from pagoda.serve.config import ServeConfig

__all__ = ["Ticket", "Traffic"]


class Traffic:
    """Counts and limits of one server. `responses` counts answers by status."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self.waiting = 0
        self.buffered_bytes = 0
        self.draining = False
        self.responses: Counter[int] = Counter()
        self._channels: set[Channel] = set()

    @property
    def running(self) -> int:
        """Requests with sequences in the engine."""
        return len(self._channels)

    @contextmanager
    def admit(self, sequences: int) -> Iterator[Ticket]:
        """A place for that many sequences until each has its first token or the block ends.
        Raises RequestError (429) when too many wait already."""
        if self.waiting and self.waiting + sequences > self._config.max_waiting:
            raise RequestError(
                "too many requests are waiting",
                code="rate_limit_exceeded",
                remedy="try again in a moment",
            )
        ticket = Ticket(self, sequences)
        try:
            yield ticket
        finally:
            ticket.close()

    @contextmanager
    def running_on(self, channel: Channel) -> Iterator[None]:
        """Keeps a request's channel known, so that a shutdown can end it."""
        self._channels.add(channel)
        try:
            yield
        finally:
            self._channels.discard(channel)

    @contextmanager
    def buffering(self) -> Iterator[BodyBuffer]:
        """A buffer for one request's body, counted until the block ends."""
        buffer = BodyBuffer(self, self._config)
        try:
            yield buffer
        finally:
            self.buffered_bytes -= len(buffer.data)

    def end_all(self) -> None:
        """Ends every running request: the server is going away."""
        for channel in list(self._channels):
            channel.end(Ending.SHUTDOWN)


class Ticket:
    """The waiting sequences of one request."""

    def __init__(self, traffic: Traffic, sequences: int) -> None:
        self._traffic = traffic
        self._left = sequences
        traffic.waiting += sequences

    def started(self) -> None:
        """One more sequence has its first token."""
        assert self._left > 0, "no more sequences start than were admitted"
        self._left -= 1
        self._traffic.waiting -= 1

    def close(self) -> None:
        self._traffic.waiting -= self._left
        self._left = 0


class BodyBuffer:
    """A body as it arrives. Raises RequestError when it, or all together, grow too large."""

    def __init__(self, traffic: Traffic, config: ServeConfig) -> None:
        self._traffic = traffic
        self._config = config
        self.data = bytearray()

    def expect(self, size_bytes: int) -> None:
        """Refuses an announced size at once, before it is sent."""
        if size_bytes > self._config.max_body_bytes:
            raise RequestError(
                f"the body is larger than {self._config.max_body_bytes} bytes",
                code="body_too_large",
            )

    def add(self, chunk: bytes) -> None:
        self.expect(len(self.data) + len(chunk))
        if self._traffic.buffered_bytes + len(chunk) > self._config.max_buffered_bytes:
            raise RequestError(
                "too many large bodies are being received",
                code="rate_limit_exceeded",
                remedy="try again in a moment",
            )
        self.data += chunk
        self._traffic.buffered_bytes += len(chunk)
