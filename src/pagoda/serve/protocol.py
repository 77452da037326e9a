"""uvicorn's HTTP/1.1 connection with an end to its patience.

uvicorn times out only an idle connection after a response. Here every state has a deadline:

    connected ──head──▶ body ──▶ answering ──▶ idle ──head──▶ …
    header_timeout_s    body_timeout_s         idle_timeout_s
                        answering: stall_timeout_s, while bytes wait that the client does not read

Dripping single bytes moves no deadline. `expired` is asked by the server's sweep, so that ten
thousand connections need no timers of their own.
"""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from pagoda.core.errors import RequestError
from pagoda.serve.config import ServeConfig
from pagoda.serve.errors import dump, error_body

__all__ = ["BoundedProtocol", "LimitedConfig"]

# A client may send its next request before it has the answer to this one, up to this many bytes.
PIPELINED_BYTES = 64 << 10

FULL = RequestError("the server has too many connections", code="unavailable")
INVALID = RequestError("the request is not valid HTTP/1.1", code="invalid_request")


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration with the limits of ours."""

    limits: ServeConfig


class BoundedProtocol(H11Protocol):
    """A connection that knows since when it owes something."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _send_without_delay(transport)
        self._limits = cast(LimitedConfig, self.config).limits
        self._last_cycle: object = None
        self._receiving = False  # part of a request's head has come
        self._since = self._read_since = self.loop.time()
        self._unread_bytes = 0
        if len(self.connections) > self._limits.max_connections:
            self._make_room()

    @property
    def request(self) -> RequestResponseCycle | None:
        """The last request whose head was complete; uvicorn types it as always present."""
        return self.cycle

    @property
    def awaiting_request(self) -> bool:
        """No request is being received or answered."""
        last = self.request
        return last is None or (last.response_complete and not last.more_body)

    def data_received(self, data: bytes) -> None:
        if self.awaiting_request and not self._receiving:
            self._receiving = True
            self._since = self.loop.time()
        super().data_received(data)
        self._note_request()
        self._bound_pipelined()

    def on_response_complete(self) -> None:
        self._receiving = False
        self._since = self.loop.time()
        super().on_response_complete()
        self._note_request()

    def expired(self, now_s: float) -> bool:
        """Whether the client has kept the server waiting for too long. To be asked again and
        again: progress of a slow reader is seen by comparing with the time before."""
        if self._stalled(now_s):
            return True
        waited_s = now_s - self._since
        last, limits = self.request, self._limits
        if last is None or self.awaiting_request:
            served = last is not None and not self._receiving
            return waited_s > (limits.idle_timeout_s if served else limits.header_timeout_s)
        return last.more_body and waited_s > limits.body_timeout_s

    def shutdown(self) -> None:
        """Closes an idle connection, lets a busy one close after its answer."""
        if not self.transport.is_closing():
            super().shutdown()

    def abort(self) -> None:
        """Closes at once, whatever is still to be sent."""
        self.connections.discard(self)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """A malformed request, in OpenAI's shape; one that breaks while it is being answered
        only ends the connection."""
        del msg
        if self.conn.our_state is h11.IDLE:
            self._refuse(INVALID, b"400 Bad Request")
        else:
            self.abort()

    def _note_request(self) -> None:
        """A new request's head is complete: its body's time begins."""
        if self.cycle is not self._last_cycle:
            self._last_cycle = self.cycle
            self._receiving = False
            self._since = self.loop.time()

    def _bound_pipelined(self) -> None:
        """uvicorn stops reading when a second request arrives early, and would then not see
        the client leave. So reading goes on, within a bound."""
        if self.conn.their_state is not h11.DONE or not self.flow.read_paused:
            return
        early, _ = self.conn.trailing_data
        if len(early) > PIPELINED_BYTES:
            self.abort()
        else:
            self.flow.resume_reading()

    def _stalled(self, now_s: float) -> bool:
        unread = self.transport.get_write_buffer_size()
        if unread == 0 or unread < self._unread_bytes:
            self._read_since = now_s
        self._unread_bytes = unread
        return now_s - self._read_since > self._limits.stall_timeout_s

    def _make_room(self) -> None:
        """Over the limit, the connection that has asked for nothing for longest goes; when
        every one is being served, the newcomer."""
        others = [c for c in self.connections if isinstance(c, BoundedProtocol) and c is not self]
        waiting = [c for c in others if c.awaiting_request]
        if waiting:
            min(waiting, key=lambda c: (c.request is not None, c._since)).abort()
        else:
            self.connections.discard(self)
            self._refuse(FULL, b"503 Service Unavailable")

    def _refuse(self, error: RequestError, status: bytes) -> None:
        body = dump(error_body(error))
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\n" % status
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()


def _send_without_delay(transport: asyncio.Transport) -> None:
    """Turns Nagle's algorithm off: with the client's delayed acknowledgements it would hold
    each answer's body, and each token, back for 40 ms. asyncio does so only for sockets whose
    protocol number is given, which a listener's default of 0 is not."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
