"""An end to every call, whatever a server sends: its connection is cut when the time is over.

An HTTP client's time-outs count from one byte to the next. A server that drips a header, or sends
interim answers for ever, passes them all.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

_CONNECTED = "connection.connect_tcp.complete"


class Deadline:
    """One call's. `trace` is httpx's extension of that name, and the call has a connection of its
    own."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Take hold of the connection."""
        if event != _CONNECTED:
            return
        # A second descriptor: TLS takes the first one away.
        held: socket.socket = info["return_value"].get_extra_info("socket").dup()
        with self._lock:
            self._socket = held
            if self.passed:
                _shut(held)

    def _cut(self) -> None:
        with self._lock:
            self.passed = True
            if self._socket is not None:
                _shut(self._socket)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # the server was first
        connection.shutdown(socket.SHUT_RDWR)
