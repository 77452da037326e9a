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

from pagoda.core.errors import SettingsError

MEDIUM = "DISK"
_SWEEP = 64  # announced pages that are looked after at a time
_TOPIC, _SEQUENCE_BYTES = b"", 8

Encode = Callable[[object], bytes]


class PageEvents:
    """What routers were told. `stored` from any thread, the rest from one."""

    def __init__(self, socket: Any, encode: Encode, *, tokens: int, replica: int) -> None:
        self._socket = socket
        self._encode = encode
        self._tokens = tokens
        self._replica = replica
        self._numbers = itertools.count()
        self._news: deque[str] = deque()
        self._announced: dict[str, None] = {}

    def stored(self, names: Sequence[str]) -> None:
        """Pages were stored; they are announced with the next call of `publish`."""
        self._news.extend(names)

    def publish(self, present: Callable[[Sequence[str]], Sequence[bool]]) -> None:
        """Tell of what came, and of what is not `present` any more; looks at a few of those that
        were announced at a time, in turn."""
        events: list[object] = []
        news = dict.fromkeys(self._news.popleft() for _ in range(len(self._news)))
        fresh = [name for name in news if name not in self._announced]
        self._announced.update(dict.fromkeys(fresh))
        if fresh:
            events.append(self._stored(fresh))
        gone = self._gone(present)
        if gone:
            events.append({"type": "BlockRemoved", "block_hashes": gone, "medium": MEDIUM})
        if events:
            batch = [time.time(), events, self._replica]
            number = next(self._numbers).to_bytes(_SEQUENCE_BYTES, "big")
            self._socket.send_multipart([_TOPIC, number, self._encode(batch)])

    def close(self) -> None:
        """Tell nothing more."""
        self._socket.close()

    def _stored(self, names: Sequence[str]) -> object:
        return {
            "type": "BlockStored",
            "block_hashes": [hash_of(name) for name in names],
            "parent_block_hash": None,
            "token_ids": [],
            "block_size": self._tokens,
            "lora_id": None,
            "medium": MEDIUM,
        }

    def _gone(self, present: Callable[[Sequence[str]], Sequence[bool]]) -> list[int]:
        some = list(itertools.islice(self._announced, _SWEEP))
        gone: list[int] = []
        for name, there in zip(some, present(some), strict=True):
            del self._announced[name]
            if there:
                self._announced[name] = None  # its next turn comes after all others'
            else:
                gone.append(hash_of(name))
        return gone


def hash_of(name: str) -> int:
    """A page's name as SGLang's events have it: 64 bits, signed."""
    return int.from_bytes(bytes.fromhex(name)[:8], "big", signed=True)


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
