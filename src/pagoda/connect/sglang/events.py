"""Events of pages on Pagoda's drives, for those who route requests to where their prefix lies.

SGLang publishes what happens to pages on the device and in host memory, and gives a backend no way
to its publisher. So there is one here: a ZeroMQ socket that speaks as SGLang's does, with the
medium DISK. A page is named by the first 64 bits of SGLang's own name, as there; of its tokens and
its parent nothing is known here.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from pagoda.connect.announced import Announced
from pagoda.core.errors import SettingsError

MEDIUM = "DISK"
_BREATH_S = 0.001
_TOPIC, _SEQUENCE_BYTES = b"", 8

Encode = Callable[[object], bytes]


class PageEvents:
    """What routers are told. `stored` from any thread, the rest from one. Names are of 64
    hexadecimal digits."""

    def __init__(self, socket: Any, encode: Encode, *, tokens: int, replica: int) -> None:
        self._socket = socket
        self._encode = encode
        self._tokens = tokens
        self._replica = replica
        self._numbers = itertools.count()
        self._news: deque[bytes] = deque()
        self._announced: Announced | None = None

    def open(self, announced: Announced) -> None:
        """From now on pages are told of, beginning with those of earlier processes."""
        self._announced = announced

    def stored(self, names: Sequence[str]) -> None:
        """Pages were stored; they are announced with the next call of `publish`."""
        self._news.extend(map(bytes.fromhex, names))

    def publish(self, since_s: float) -> None:
        """Tell of what came, and of what has left; looks after as many of those that were
        announced as are due when the last call was `since_s` ago."""
        announced = self._announced
        if announced is None:
            return
        announced.look(since_s, _breathe)
        events: list[object] = []
        news = announced.add(self._news.popleft() for _ in range(len(self._news)))
        fresh = announced.take_found() + news
        if fresh:
            events.append(self._stored(fresh))
        gone = announced.take_gone()
        if gone:
            hashes = [hash_of(name) for name in gone]
            events.append({"type": "BlockRemoved", "block_hashes": hashes, "medium": MEDIUM})
        if events:
            batch = [time.time(), events, self._replica]
            number = next(self._numbers).to_bytes(_SEQUENCE_BYTES, "big")
            self._socket.send_multipart([_TOPIC, number, self._encode(batch)])

    def close(self, timeout_s: float) -> None:
        """Tell nothing more; the names are kept, within `timeout_s`."""
        if self._announced is not None:
            self._announced.close(timeout_s)
        self._socket.close()

    def _stored(self, names: Sequence[bytes]) -> object:
        return {
            "type": "BlockStored",
            "block_hashes": [hash_of(name) for name in names],
            "parent_block_hash": None,
            "token_ids": [],
            "block_size": self._tokens,
            "lora_id": None,
            "medium": MEDIUM,
        }


def hash_of(name: bytes) -> int:
    """A page's name as SGLang's events have it: 64 bits, signed."""
    return int.from_bytes(name[:8], "big", signed=True)


def _breathe() -> None:
    """Others want the store, too."""
    time.sleep(_BREATH_S)


def publisher(endpoint: str, *, tokens: int, replica: int) -> PageEvents:
    """Events on a socket at `endpoint`, each replica of a server on a port of its own. Raises
    SettingsError when the packages are not there or nobody can listen there."""
    try:
        zmq: Any = import_module("zmq")
        encode = import_module("msgspec.msgpack").encode
    except ImportError as error:
        raise _bad(endpoint, error) from error
    socket = zmq.Context.instance().socket(zmq.PUB)
    socket.setsockopt(zmq.LINGER, 0)
    try:
        socket.bind(_of_replica(endpoint, replica))
    except zmq.ZMQError as error:
        socket.close()
        raise _bad(endpoint, error) from error
    return PageEvents(socket, encode, tokens=tokens, replica=replica)


def _of_replica(endpoint: str, replica: int) -> str:
    if not replica:
        return endpoint
    head, colon, port = endpoint.rpartition(":")
    if not colon or not port.isdigit():
        return f"{endpoint}-{replica}"
    return f"{head}:{int(port) + replica}"


def _bad(endpoint: str, error: Exception) -> SettingsError:
    return SettingsError(
        f"events of pages cannot be published at {endpoint}: {error}",
        key="kv_events",
        source="--hicache-storage-backend-extra-config",
        remedy="name a free tcp:// or ipc:// address, and install pyzmq and msgspec",
    )
